"""The task's own tiny model as a folder, because verl starts from folders."""

from __future__ import annotations

from dataclasses import replace
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
    workers = min(MOST_WORKERS, usable_cores())
    train = run.config.train.model_copy(update={"workers": workers})
    run = replace(run, config=run.config.model_copy(update={"train": train}))
    folder = _own_model(run).folder(workers)
    if cached_model(folder, run.progress) is not None:
        return folder
    with worker_processes(_build_program, run) as together:
        _build_program(run, together)
    return folder


def _build_program(run: EngineRun, workers: Workers) -> None:
    _own_model(run).build(workers, run.progress)


def _own_model(run: EngineRun) -> OwnModel:
    return OwnModel.of(run.config, run.tasks.only, run.fingerprints, run.make_chat)
