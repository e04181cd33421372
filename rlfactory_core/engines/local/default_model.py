"""The task's own tiny model, warm-started and cached: what a run without ``--model`` starts from.

The cache is keyed by a hash of everything that goes into the model: the recipe, the seed, the number of processes, and
the source of the code that trains it. A second run finds it and starts training at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import torch

from rlfactory_core import __version__
from rlfactory_core.cache import build_once, cache_root, digest
from rlfactory_core.chat.qwen3 import Qwen3Format
from rlfactory_core.engines.local import tiny_model, warmstart
from rlfactory_core.engines.local.checkpoint import write_model
from rlfactory_core.engines.local.loading import load_pretrained
from rlfactory_core.engines.local.policy import RaggedPolicy
from rlfactory_core.engines.local.warmstart import Encoder, WarmStart
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.tiny import TinyModelRecipe
from rlfactory_core.types import ToolSpec


@dataclass(frozen=True, slots=True)
class DefaultModel:
    """Model and tokenizer on the CPU, and whether they came from the cache."""

    model: Any
    tokenizer: Any
    cached: bool


def recipe_hash(recipe: TinyModelRecipe, tools: Sequence[ToolSpec], seed: int, size: int) -> str:
    """What the cached model depends on, as hex digits."""
    sources = [Path(module.__file__ or "").read_text(encoding="utf-8") for module in (tiny_model, warmstart)]
    stages = [(stage.max_steps, stage.batch, stage.target, stage.context_weight) for stage in recipe.stages]
    facts = {
        "recipe": [recipe.fingerprint, dict(recipe.architecture), recipe.vocab_size, stages],
        "chat": [recipe.chat_template, recipe.special_tokens],
        "rates": [recipe.lr, recipe.muon_lr, recipe.warmup_steps],
        "tools": [[tool.name, tool.description, dict(tool.parameters)] for tool in tools],
        "run": [seed, size, __version__, torch.__version__],
        "sources": sources,
    }
    return digest([json.dumps(facts, sort_keys=True)])


def model_folder(recipe: TinyModelRecipe, tools: Sequence[ToolSpec], seed: int, size: int) -> Path:
    """Where the cache has the model, if it has it."""
    return cache_root() / "models" / recipe_hash(recipe, tools, seed, size)


def build_default_model(
    recipe: TinyModelRecipe,
    tools: Sequence[ToolSpec],
    seed: int,
    workers: Workers,
    progress: Progress,
    make_chat: Callable[[Any], ChatFormat] = Qwen3Format,
) -> DefaultModel:
    """From the cache, or built and warm-started by all processes together, then cached.

    Where tools do not answer the same in each of them, the processes' recipes differ: the first one's words and cache
    count.

    Args:
        make_chat: the chat format of the recipe's tokenizer, which writes the demonstrations.

    Raises:
        ChatFormatError: none fits the recipe's chat template, or it cannot write what is demonstrated.
    """
    folder = workers.broadcast(model_folder(recipe, tools, seed, workers.size))
    if workers.broadcast(folder.is_dir()):
        model, tokenizer = load_pretrained(str(folder), torch.device("cpu"), torch.float32)
        return DefaultModel(model, tokenizer, cached=True)
    progress.stage("warm start: tokenizer")
    tokenizer = workers.broadcast(tiny_model.recipe_tokenizer(recipe) if workers.first else None)
    model = tiny_model.build_model(recipe, tokenizer, seed)
    encoder = Encoder(make_chat(tokenizer), tools, raw=not recipe.chat_template)
    WarmStart(RaggedPolicy(model), recipe, encoder, workers, seed).run(_report(recipe, progress))
    if workers.first:
        build_once(folder, lambda temporary: write_model(temporary, model, tokenizer))
    return DefaultModel(model, tokenizer, cached=False)


def _report(recipe: TinyModelRecipe, progress: Progress) -> warmstart.Report:
    shown = [-1]

    def report(stage: int, step: int, loss: float, accuracy: float) -> None:
        if shown[0] != stage:
            shown[0] = stage
            goal = "until it copies" if recipe.stages[stage].target else "noisy demonstrations"
            progress.stage(f"warm start: {goal}", recipe.stages[stage].max_steps, "step")
        numbers = {"loss": loss}
        if not isnan(accuracy):
            numbers["probe"] = accuracy
        progress.advance(1, **numbers)

    return report
