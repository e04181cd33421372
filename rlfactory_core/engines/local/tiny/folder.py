"""Gives a tiny model as a folder, from which a server can load it."""

from __future__ import annotations

import time
from pathlib import Path

from filelock import FileLock

from rlfactory_core.engines.local.tiny.model_cache import model_folder
from rlfactory_core.errors import ModelError
from rlfactory_core.reporting.progress import NullProgress, Progress
from rlfactory_core.tiny import TinyModelRecipe

_HEAD_START_S = 1.0  # the process that shows progress should be the one that builds


def tiny_model_folder(recipe: TinyModelRecipe, seed: int, progress: Progress) -> Path:
    """The folder of the recipe's model, in Hugging Face's layout. The model is built if the cache does not have it.

    Processes that ask at the same time wait for the one that builds. The number of processes does not change the model.

    Raises:
        DataError: the cache cannot be written.
        ModelError: the model has missed the target of its warm start.
    """
    folder = model_folder(recipe, (), seed, 1)
    if folder.is_dir():
        return folder
    from rlfactory_core.engines.local.tiny.building import build
    from rlfactory_core.engines.local.workers import Workers
    from rlfactory_core.engines.tiny import TinyModel

    if type(progress) is NullProgress:
        time.sleep(_HEAD_START_S)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        if not folder.is_dir():
            build(TinyModel(recipe, (), seed), Workers(), progress)
    if not folder.is_dir():
        raise ModelError("The model has not learnt its task, so it cannot be used. Try another seed: --seed NUMBER.")
    return folder
