"""What a method is: the clipped surrogate, with the keys that make it that method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_core.config import RewardConfig
from rlfactory_core.config.sections import LimitsConfig


@dataclass(frozen=True, slots=True)
class Method:
    """A name of ``train.loss`` and what it means.

    Args:
        train: keys of ``train`` and their values.
        rewards: gives the rewards that belong to it, of the limits of an attempt.
    """

    name: str
    train: Mapping[str, Any]
    rewards: Callable[[LimitsConfig], Sequence[RewardConfig]] = lambda _limits: ()
