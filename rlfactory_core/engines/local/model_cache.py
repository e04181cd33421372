"""Where the cache has a recipe's model; without torch, whose import takes longer than all that a look takes besides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rlfactory_core import __version__
from rlfactory_core.cache import cache_root, digest
from rlfactory_core.tiny import TinyModelRecipe
from rlfactory_core.types import ToolSpec

_SOURCES = ("tiny_model.py", "warmstart.py")


def model_folder(recipe: TinyModelRecipe, tools: Sequence[ToolSpec], seed: int, size: int) -> Path:
    """Where the cache has the model, if it has it."""
    return cache_root() / "models" / recipe_hash(recipe, tools, seed, size)


def recipe_hash(recipe: TinyModelRecipe, tools: Sequence[ToolSpec], seed: int, size: int) -> str:
    """What the cached model depends on, as hex digits."""
    stages = [(stage.max_steps, stage.batch, stage.target, stage.context_weight) for stage in recipe.stages]
    facts = {
        "recipe": [recipe.fingerprint, dict(recipe.architecture), recipe.vocab_size, stages],
        "chat": [recipe.chat_template, recipe.special_tokens],
        "rates": [recipe.lr, recipe.muon_lr, recipe.warmup_steps],
        "tools": [[tool.name, tool.description, dict(tool.parameters)] for tool in tools],
        "run": [seed, size, __version__, version("torch")],
        "sources": [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in _SOURCES],
    }
    return digest([json.dumps(facts, sort_keys=True)])
