"""The local engine: completes a configuration for this machine, then trains or evaluates in one or more processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from rlfactory_core.algo.advantages import GAE
from rlfactory_core.engines.base import Conversation, EngineRun
from rlfactory_core.engines.local.local_run import LocalRun, opened
from rlfactory_core.engines.local.memory import memory
from rlfactory_core.engines.local.model.loading import choose_device, quiet_transformers
from rlfactory_core.engines.local.tiny.default_model import MOST_WORKERS
from rlfactory_core.engines.local.training.checkpoint import roll_back
from rlfactory_core.engines.local.training.processes import worker_processes
from rlfactory_core.engines.local.training.workers import Compute, Workers
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.errors import ConfigError
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.utils.cpu import compute_threads, usable_cores

T = TypeVar("T")
Settings = TypeVar("Settings", bound=EngineSettings)


class LocalEngine:
    """Trains in this process, and for a small model on the CPU also in further processes like it."""

    memory = staticmethod(memory)
    uses_algorithms = True

    def roll_back(self, folder: RunFolder, step: int) -> int | None:
        return roll_back(folder.checkpoints, step)

    def prepare(self, config: Settings) -> Settings:
        device = choose_device(config.device)
        if config.rollout.deterministic and config.train.staleness:
            raise ConfigError(
                "rollout.deterministic=true needs train.staleness=0: rollouts that overlap with updates depend on time."
            )
        if config.train.advantage == GAE:
            _check_critic(config)
        workers = config.train.workers or self._workers(config, device)
        if workers > 1 and device.type != "cpu":
            raise ConfigError(f"train.workers={workers}: only the CPU can use several processes; on {device} use 1.")
        if config.train.prompts_per_step < workers:
            raise ConfigError(
                f"train.prompts_per_step={config.train.prompts_per_step} is less than train.workers={workers}: every "
                "process needs a prompt. Raise the one or lower the other."
            )
        train = config.train.model_copy(update={"workers": workers})
        return config.model_copy(update={"device": str(device), "train": train})

    def _workers(self, config: EngineSettings, device: torch.device) -> int:
        """Below some 20 M parameters a second thread slows a process down, and a second process does not."""
        if device.type != "cpu" or config.model is not None:
            return 1
        return max(1, min(MOST_WORKERS, usable_cores(), config.train.prompts_per_step))

    def train(self, run: EngineRun) -> dict[str, Any]:
        return _in_processes(_train, run)

    def evaluate(self, run: EngineRun) -> dict[str, Any]:
        return _in_processes(_evaluate, run)

    def converse(self, run: EngineRun, conversation: Conversation) -> None:
        async def talk(local: LocalRun) -> None:
            await conversation(local.rollouts.runtime, local.rollouts.sampler)

        asyncio.run(_run(run, Workers(), talk))


def _in_processes(program: Callable[[EngineRun, Workers], dict[str, Any]], run: EngineRun) -> dict[str, Any]:
    with worker_processes(program, run) as workers:
        return program(run, workers)


def _check_critic(config: EngineSettings) -> None:
    train = config.train
    if train.aggregation != "token":
        raise ConfigError(
            f"train.aggregation={train.aggregation}: with train.advantage=gae each token weighs the same. Set token."
        )
    if train.refill:
        raise ConfigError(
            "train.refill=true compares the attempts of a group, and train.advantage=gae does not. Leave one out."
        )


def _train(run: EngineRun, workers: Workers) -> dict[str, Any]:
    """The program of every process that trains."""
    return asyncio.run(_run(run, workers, LocalRun.train, training=True))


def _evaluate(run: EngineRun, workers: Workers) -> dict[str, Any]:
    """The program of every process that evaluates."""
    return asyncio.run(_run(run, workers, lambda local: local.evaluate("after", intervals=True)))


async def _run(
    run: EngineRun, workers: Workers, use: Callable[[LocalRun], Awaitable[T]], *, training: bool = False
) -> T:
    run.stop.task = asyncio.current_task()
    threads = 1 if workers.size > 1 or run.config.model is None else compute_threads()
    thread = ThreadPoolExecutor(1, "rlfactory-compute", initializer=torch.set_num_threads, initargs=(threads,))
    torch.set_num_threads(threads)
    try:
        with quiet_transformers():
            async with opened(run, Compute(workers, thread), training=training) as local:
                return await use(local)
    finally:  # after a failure the thread may hang in a collective until the other processes end: do not wait for it
        thread.shutdown(wait=False, cancel_futures=True)
