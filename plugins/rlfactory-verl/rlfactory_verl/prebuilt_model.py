"""The task's own tiny model as a folder, because verl starts from folders."""

from __future__ import annotations

from pathlib import Path

from rlfactory_core.engines.base import EngineRun
from rlfactory_core.engines.local.tiny.default_model import MOST_WORKERS, OwnModel, cached_model
from rlfactory_core.engines.local.training.processes import worker_processes
from rlfactory_core.engines.local.training.workers import Workers
from rlfactory_core.utils.cpu import usable_cores


def prebuilt_model(run: EngineRun) -> Path:
    """The folder of the task's own model in the cache; if it is missing, the machine's cores build it together.

    Raises:
        ModelError: the task has no model of its own.
    """
    train = run.config.train.model_copy(update={"workers": min(MOST_WORKERS, usable_cores())})
    config = run.config.model_copy(update={"train": train})
    run = EngineRun(config, run.registry, run.folder, run.progress, made=run.parts)
    folder = OwnModel.of(run.parts).folder(train.workers)
    if cached_model(folder, run.progress) is not None:
        return folder
    with worker_processes(_build_program, run) as workers:
        _build_program(run, workers)
    return folder


def _build_program(run: EngineRun, workers: Workers) -> None:
    OwnModel.of(run.parts).build(workers, run.progress)
