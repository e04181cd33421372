"""A task's own tiny model as a folder of the cache, for programs that load folders; and its tokenizer.

torch is imported only where the model has to be built, since that takes longer than to look the folder up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from rlfactory_core.engines.base import EngineRun
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.engines.tiny import TinyModel
from rlfactory_core.errors import ModelError
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.tasks.setup import TaskSetup
from rlfactory_core.tiny import TinyModelRecipe
from rlfactory_core.utils.cpu import usable_cores

if TYPE_CHECKING:
    from rlfactory_core.engines.local.workers import Workers

MOST_PROCESSES = 8  # more do not pay for a tiny model's batches
_HEAD_START_S = 1.0  # the process that shows progress should be the one that builds


def tiny_model_folder(recipe: TinyModelRecipe, seed: int, progress: Progress) -> Path:
    """The folder of a recipe's model, in Hugging Face's layout. This process builds it if the cache does not have it.

    Processes that ask at the same time wait for the one that builds.

    Raises:
        DataError: the cache cannot be written.
        ModelError: the model has missed the target of its warm start.
    """
    tiny = TinyModel(recipe, (), seed)
    folder = tiny.folder(1)
    if folder.is_dir():
        return folder
    from rlfactory_core.engines.local.tiny.building import build
    from rlfactory_core.engines.local.workers import Workers

    if type(progress) is Progress:
        time.sleep(_HEAD_START_S)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        if not folder.is_dir():
            build(tiny, Workers(), progress)
    if not folder.is_dir():
        raise ModelError("The model has not learnt its task, so it cannot be used. Try another seed: --seed NUMBER.")
    return folder


def prebuilt_model(run: EngineRun) -> Path:
    """The folder of the task's own model; if the cache does not have it, the machine's cores build it together.

    Raises:
        ModelError: the task has no model of its own.
    """
    from rlfactory_core.engines.local.processes import worker_processes
    from rlfactory_core.engines.local.tiny.building import build

    size = min(MOST_PROCESSES, usable_cores())
    tiny = TinyModel.of(run.config, run.tasks.only, run.fingerprints, run.make_chat)
    folder = tiny.folder(size)
    if not folder.is_dir():
        with worker_processes(size, partial(_build_elsewhere, run.again)) as workers:
            build(tiny, workers, run.progress)
    return folder


def _build_elsewhere(again: Callable[[], EngineRun], workers: Workers) -> None:
    from rlfactory_core.engines.local.tiny.building import build

    run = again()
    build(TinyModel.of(run.config, run.tasks.only, run.fingerprints, run.make_chat), workers, run.progress)


def tokenizer_of(config: EngineSettings, setup: TaskSetup, fingerprints: Sequence[Fingerprint]) -> Any:
    """The tokenizer of a run's model, without the model.

    Raises:
        ModelError: see `TinyModel.of`; or the model that is named cannot be found or read.
    """
    from rlfactory_core.engines.local.model.loading import load_tokenizer, quiet_transformers
    from rlfactory_core.engines.local.tiny.tiny_model import recipe_tokenizer

    with quiet_transformers():
        if config.model is not None:
            return load_tokenizer(config.model)
        return recipe_tokenizer(TinyModel.of(config, setup, fingerprints).recipe)
