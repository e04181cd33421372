"""A tiny model's folder in the cache. Does not import torch, which would take longer than the look-up."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rlfactory_core.cache import cache_root, digest
from rlfactory_core.errors import ModelError
from rlfactory_core.reporting.progress import NullProgress, Progress
from rlfactory_core.tiny import TinyModelRecipe
from rlfactory_core.types import ToolSpec
from rlfactory_core.version import __version__

_SOURCES = ("tiny_model.py", "warmstart.py")
_HEAD_START_S = 1.0  # the process that shows progress should be the one that builds


def model_folder(recipe: TinyModelRecipe, tools: Sequence[ToolSpec], seed: int, size: int) -> Path:
    """The model's folder in the cache, whether it exists or not; its name is a hash of all that it depends on."""
    stages = [(stage.max_steps, stage.batch, stage.target, stage.context_weight) for stage in recipe.stages]
    facts = {
        "recipe": [recipe.fingerprint, dict(recipe.architecture), recipe.vocab_size, stages],
        "chat": [recipe.chat_template, recipe.special_tokens],
        "rates": [recipe.lr, recipe.muon_lr, recipe.warmup_steps],
        "tools": [[tool.name, tool.description, dict(tool.parameters)] for tool in tools],
        "run": [seed, size, __version__, version("torch")],
        "sources": [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in _SOURCES],
    }
    return cache_root() / "models" / digest([json.dumps(facts, sort_keys=True)])


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
    import fcntl  # not on Windows

    from rlfactory_core.engines.local.tiny.default_model import OwnModel
    from rlfactory_core.engines.local.training.workers import Workers

    if type(progress) is NullProgress:
        time.sleep(_HEAD_START_S)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            OwnModel(recipe, (), seed).build(Workers(), progress)
    if not folder.is_dir():
        raise ModelError("The model has not learnt its task, so it cannot be used. Try another seed: --seed NUMBER.")
    return folder
