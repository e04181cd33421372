"""The entrance: puts a run's parts together in each process, and evaluates before and after training."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from rlfactory_core.advantages import check_advantage
from rlfactory_core.config import RunConfig, VerlConfig
from rlfactory_core.cores import usable_cores
from rlfactory_core.engines.local.loading import choose_device
from rlfactory_core.engines.local.local_run import LocalRun
from rlfactory_core.engines.local.prebuilt import MOST_WORKERS
from rlfactory_core.engines.local.processes import worker_processes
from rlfactory_core.engines.local.quiet import quiet_transformers
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import EngineRun
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import NullProgress


class LocalEngine:
    """Trains in this process (and, for a small model on the CPU, a few more like it)."""

    def prepare(self, config: RunConfig) -> RunConfig:
        device = choose_device(config.device)
        check_advantage(config.train.advantage)
        if config.rollout.deterministic and config.train.staleness:
            raise ConfigError(
                "rollout.deterministic=true needs train.staleness=0: overlapping rollouts with updates depends on time."
            )
        own_data = config.data.train is not None or config.data.eval is not None
        if own_data and config.model is None:
            raise UsageError(
                "Data of your own needs a model of your own: the built-in tiny model knows only the words of the "
                "built-in data. Give one with --model (a folder or a hub id)."
            )
        workers = config.train.workers or self._workers(config, device)
        if workers > 1 and device.type != "cpu":
            raise ConfigError(f"train.workers={workers}: several processes are for the CPU; on {device} use 1.")
        if config.train.prompts_per_step < workers:
            raise ConfigError(
                f"train.prompts_per_step={config.train.prompts_per_step} is less than train.workers={workers}: every "
                "process needs a prompt. Raise the one or lower the other."
            )
        train = config.train.model_copy(update={"workers": workers})
        return config.model_copy(update={"device": str(device), "train": train})

    def _workers(self, config: RunConfig, device: torch.device) -> int:
        """Below some 20 M parameters a second thread slows a process down, and a second process does not."""
        if device.type != "cpu" or config.model is not None:
            return 1
        return max(1, min(MOST_WORKERS, usable_cores(), config.train.prompts_per_step))

    def train(self, run: EngineRun) -> dict[str, Any]:
        others = [f"verl.{name}" for name, value in run.config.verl if value != getattr(VerlConfig(), name)]
        if others:
            raise UsageError(
                f"{', '.join(others)}: the local engine has none of these. Add --engine verl, or drop them."
            )
        return self._in_processes(run, train_program)

    def evaluate(self, run: EngineRun) -> dict[str, Any]:
        return self._in_processes(run, evaluate_program)

    def _in_processes(self, run: EngineRun, program: Any) -> dict[str, Any]:
        fingerprints = run.registry.fingerprints()
        with worker_processes(program, run.config, str(run.folder.path), fingerprints, run.resume) as workers:
            return asyncio.run(_run(program, run, workers))


def train_program(
    config: RunConfig, folder: str, workers: Workers, fingerprints: Sequence[Fingerprint], resume: bool
) -> None:
    """What the other worker processes do while rank 0 trains."""
    asyncio.run(_run(train_program, _worker_run(config, folder, fingerprints, resume), workers))


def evaluate_program(
    config: RunConfig, folder: str, workers: Workers, fingerprints: Sequence[Fingerprint], resume: bool
) -> None:
    """What the other worker processes do while rank 0 evaluates."""
    asyncio.run(_run(evaluate_program, _worker_run(config, folder, fingerprints, resume), workers))


def _worker_run(config: RunConfig, folder: str, fingerprints: Sequence[Fingerprint], resume: bool) -> EngineRun:
    registry = Registry()
    registry.load_for_worker(fingerprints)
    return EngineRun(config, registry, RunFolder(Path(folder)), NullProgress(), resume)


async def _run(program: Any, run: EngineRun, workers: Workers) -> dict[str, Any]:
    run.stop.task = asyncio.current_task()
    threads = 1 if workers.size > 1 or run.config.model is None else usable_cores()
    compute = ThreadPoolExecutor(1, "rlfactory-compute", initializer=torch.set_num_threads, initargs=(threads,))
    torch.set_num_threads(threads)
    try:
        with quiet_transformers():
            return await _use(LocalRun(run, workers, compute), program)
    finally:  # not waited for: after a failure it may stand in a collective until the other processes are ended
        compute.shutdown(wait=False, cancel_futures=True)


async def _use(local: LocalRun, program: Any) -> dict[str, Any]:
    try:
        training = program is train_program
        await local.open(training=training)
        return await (local.train() if training else local.evaluate())
    finally:
        await local.close()
