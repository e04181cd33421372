"""The place of a recipe's model in the cache. Does not import torch, which would take longer than the look-up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rlfactory_core.cache import cache_root, digest
from rlfactory_core.tiny import TinyModelRecipe
from rlfactory_core.types import ToolSpec
from rlfactory_core.version import __version__

_SOURCES = ("tiny_model.py", "warmstart.py")


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
