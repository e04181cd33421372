"""A model that has learnt nothing: Qwen3's architecture and chat template, with a tokenizer of the task's texts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def write(folder: Path, texts: Iterable[str]) -> Path:
    """Write it in Hugging Face's layout."""
    from rlfactory_core.engines.local.tiny.tiny_model import build_model, build_tokenizer
    from rlfactory_core.tasks.demonstrations import ARCHITECTURE
    from rlfactory_core.tiny import TinyModelRecipe

    recipe = TinyModelRecipe(ARCHITECTURE, lambda: texts, 1024, (), lambda rng: (), "")
    tokenizer = build_tokenizer([*texts, "user\nassistant\nsystem\n" * 3], recipe.vocab_size)
    build_model(recipe, tokenizer, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
