"""Builds a task's own tiny model, from which a run without ``--model`` starts: warm-started once, then cached."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlfactory_core.cache import build_once, check_room
from rlfactory_core.engines.exports import Origin
from rlfactory_core.engines.local.model.loading import load_pretrained, quiet_transformers, write_model
from rlfactory_core.engines.local.model.policy import RaggedPolicy
from rlfactory_core.engines.local.tiny import tiny_model
from rlfactory_core.engines.local.tiny.warmstart import WarmStart
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.engines.tiny import TinyModel
from rlfactory_core.errors import ModelError
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.utils.seeds import derive_seed

_BYTES_PER_WEIGHT, _TOKENIZER_BYTES = 4, 1_000_000  # of a model in the cache
ATTEMPTS = 2  # of a warm start with a target


@quiet_transformers()
def build(tiny: TinyModel, workers: Workers, progress: Progress) -> tuple[Any, Any]:
    """Model and tokenizer on the CPU, from the cache, or built and warm-started by all processes, then cached.

    A warm start that misses its target goes on for as many steps again, and then begins anew with other weights,
    `ATTEMPTS` times in all. A model that has missed it to the last is not cached.

    If tools do not answer the same in each process, the recipes differ: the words and the cache of rank 0 count.

    Raises:
        ChatFormatError: none fits the recipe's chat template, or it cannot write what is demonstrated.
    """
    recipe = tiny.recipe
    folder = workers.broadcast(tiny.folder(workers.size))
    cached = _cached(folder, progress) if workers.first else None
    if workers.broadcast(cached is not None):
        return cached or _load(folder)
    progress.stage("warm start: tokenizer")
    tokenizer = workers.broadcast(tiny_model.recipe_tokenizer(recipe) if workers.first else None)
    chat = tiny.make_chat(tokenizer)
    for attempt in range(1, ATTEMPTS + 1):
        seed = tiny.seed if attempt == 1 else derive_seed(tiny.seed, "warm start", attempt)
        model = tiny_model.build_model(recipe, tokenizer, seed)
        if workers.first:
            check_room(folder.parent, _BYTES_PER_WEIGHT * model.num_parameters() + _TOKENIZER_BYTES)
        with ExitStack() as stack:
            # A second thread slows a tiny model down, and more so if other programs compute at the same time.
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
            warm_start = WarmStart(RaggedPolicy(model), recipe, chat, tiny.tools, workers, seed)
            missed = warm_start.run(progress, to_the_end=attempt == ATTEMPTS)
        if not missed:
            if workers.first:
                origin = Origin("", tuple(chat.stop_token_ids))
                build_once(folder, partial(write_model, model=model, tokenizer=tokenizer, origin=origin))
            break
        then = "It begins anew." if attempt < ATTEMPTS else "The model is used as it is, and is not cached."
        progress.say(f"warning: the warm start has missed its target: {missed}. {then}")
    return model, tokenizer


def _cached(folder: Path, progress: Progress) -> tuple[Any, Any] | None:
    """Model and tokenizer, if the cache has them. A damaged model is removed."""
    if not folder.is_dir():
        return None
    try:
        loaded = _load(folder)
    except ModelError as error:
        progress.say(f"warning: {error} It was in the cache, and is built anew.")
        shutil.rmtree(folder, ignore_errors=True)
        return None
    progress.say("the warm-started model is in the cache")
    return loaded


def _load(folder: Path) -> tuple[Any, Any]:
    return load_pretrained(str(folder), torch.device("cpu"), torch.float32)
