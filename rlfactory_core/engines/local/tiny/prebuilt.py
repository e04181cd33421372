"""The task's own tiny model as a folder, for an engine that starts from folders; built by all cores of the machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rlfactory_core.engines.base import EngineRun
from rlfactory_core.engines.local.processes import worker_processes
from rlfactory_core.engines.local.tiny.building import MOST_WORKERS, build, cached_model, folder_of
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.engines.tiny import TinyModel
from rlfactory_core.utils.cpu import usable_cores


def prebuilt_model(run: EngineRun) -> Path:
    """The folder of the task's own model in the cache; if it is missing, the machine's cores build it together.

    Raises:
        ModelError: the task has no model of its own.
    """
    tiny, size = _tiny_model(run), min(MOST_WORKERS, usable_cores())
    folder = folder_of(tiny, size)
    if cached_model(folder, run.progress) is not None:
        return folder
    with worker_processes(size, partial(_build_elsewhere, run.again)) as workers:
        build(tiny, workers, run.progress)
    return folder


def _build_elsewhere(again: Callable[[], EngineRun], workers: Workers) -> None:
    run = again()
    build(_tiny_model(run), workers, run.progress)


def _tiny_model(run: EngineRun) -> TinyModel:
    return TinyModel.of(run.config, run.tasks.only, run.fingerprints, run.make_chat)
