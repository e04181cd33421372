"""The task's own tiny model as a folder, for an engine that starts from folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from rlfactory_core.config import RunConfig
from rlfactory_core.cores import usable_cores
from rlfactory_core.engines.local.own_model import OwnModel
from rlfactory_core.engines.local.processes import worker_processes
from rlfactory_core.engines.local.quiet import quiet_transformers
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import EngineRun
from rlfactory_core.reporting.progress import NullProgress, Progress
from rlfactory_core.task import make_task

MOST_WORKERS = 8  # more processes than this do not pay for a tiny model's batches


def prebuilt_model(run: EngineRun) -> Path:
    """The cached folder; where it is not there, the model is built and warm-started by all cores together.

    Raises:
        ModelError: the task brings no model of its own.
    """
    train = run.config.train.model_copy(update={"workers": min(MOST_WORKERS, usable_cores())})
    config = run.config.model_copy(update={"train": train})
    folder = _build(config, run.registry, None, run.progress)
    if folder.is_dir():
        run.progress.say("the warm-started model is in the cache")
        return folder
    prints = run.registry.fingerprints()
    with worker_processes(_program, config, str(run.folder.path), prints, False) as workers:  # noqa: FBT003
        return _build(config, run.registry, workers, run.progress)


def _program(
    config: RunConfig, folder: str, workers: Workers, fingerprints: Sequence[Fingerprint], resume: bool
) -> None:
    registry = Registry()
    registry.load_for_worker(fingerprints)
    _build(config, registry, workers, NullProgress())


def _build(config: RunConfig, registry: Registry, workers: Workers | None, progress: Progress) -> Path:
    """The model's folder, built there by the ``workers``; without them only its name."""
    task = make_task(registry.task(config.plugin), config.task, config.seed)
    own = OwnModel.of(task, config, registry)
    if workers is not None:
        torch.set_num_threads(1)  # a second thread slows a tiny model down, and a second process does not
        with quiet_transformers():
            own.build(workers, progress)
    return own.folder(config.train.workers)
