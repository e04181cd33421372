"""The recipe of a task's own tiny model: what the embedded engine builds where no ``--model`` is given.

Plain data and pure functions of a task; how it is built and trained stands in ``engines/local/warmstart``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.types import Message

Demonstration = tuple[Message, ...]
"""A whole episode: user, assistant, tool, … An assistant's ``content`` is its raw text, tool calls included."""


@dataclass(frozen=True, slots=True)
class WarmStartStage:
    """One stretch of supervised training on the model's own tokens of demonstrations."""

    demonstrate: Callable[[random.Random], Demonstration]
    max_steps: int
    batch: int
    target: float = 0.0  # >0: end as soon as the held-out copy accuracy reaches this
    context_weight: float = 0.0  # loss weight of the tokens that are not the model's own


@dataclass(frozen=True, slots=True)
class TinyModelRecipe:
    """Qwen3 architecture, byte-level BPE and a short supervised warm start.

    ``probe`` gives held-out clean demonstrations; a stage with a target ends when, teacher-forced, the answers'
    and queries' tokens named by ``probe_tokens`` are predicted with that accuracy.
    """

    architecture: Mapping[str, Any]  # Qwen3Config fields
    vocabulary: Callable[[], Iterable[str]]  # texts to train the tokenizer on
    vocab_size: int
    stages: tuple[WarmStartStage, ...]
    probe: Callable[[random.Random], Demonstration]
    fingerprint: str  # of everything above that a hash cannot see: the task's version of its generators
    lr: float = 3e-3
    muon_lr: float = 0.02
    warmup_steps: int = 20
    options: Mapping[str, Any] = field(default_factory=dict)
