"""What a method is: the clipped surrogate, with the keys that make it that method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Method:
    """A name of ``train.loss`` and what it means.

    Args:
        train: keys of ``train`` and their values.
        rewards: takes the most tokens that an attempt can sample, and gives the rewards that belong to the method, as
            in a configuration.
    """

    name: str
    train: Mapping[str, Any]
    rewards: Callable[[int], Sequence[Mapping[str, Any]]] = lambda _limit: ()
