"""Writes a policy as a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlfactory_core.engines.exports import NOWHERE, Origin, complete
from rlfactory_core.engines.local.model.lora import merged_state_dict


def write_model(
    folder: Path,
    model: Any,
    tokenizer: Any,
    origin: Origin = NOWHERE,
    beside: Callable[[Path], None] = lambda _folder: None,
) -> None:
    """A Hugging Face folder: config, weights, tokenizer with its chat template; LoRA is merged into the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, state_dict=merged_state_dict(model))
    tokenizer.save_pretrained(folder)
    beside(folder)
    complete(folder, origin)
