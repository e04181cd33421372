"""The task's own tiny model, warm-started and cached: what a run without ``--model`` starts from.

The cache is keyed by a hash of everything that goes into the model: the recipe, the seed, the number of processes, and
the source of the code that trains it. A second run finds it and starts training at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import torch

from rlfactory_core.cache import build_once
from rlfactory_core.chat.qwen3 import Qwen3Format
from rlfactory_core.engines.local import tiny_model, warmstart
from rlfactory_core.engines.local.checkpoint import write_model
from rlfactory_core.engines.local.loading import load_pretrained
from rlfactory_core.engines.local.model_cache import model_folder
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
