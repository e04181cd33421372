"""The order in which prompts are sampled; it is the same in every engine."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.algo.prompts import Played
from rlfactory_core.types import Sample
from rlfactory_core.utils.seeds import derive_seed


class UniformPrompts:
    """Each sample once an epoch, in an order that is shuffled anew; replacements have orders of their own.

    Args:
        per_step: prompts of one step.
    """

    def __init__(self, samples: Sequence[Sample], per_step: int, seed: int) -> None:
        self._samples, self._per_step, self._seed = len(samples), per_step, seed
        self._shuffled: dict[int, tuple[int, list[int]]] = {}  # the replacement's number -> an epoch and its order

    def step(self, step: int) -> list[int]:
        return [self.index(position) for position in range((step - 1) * self._per_step, step * self._per_step)]

    def replacement(self, step: int, place: int, number: int) -> int:
        return self.index((step - 1) * self._per_step + place, number)

    def index(self, position: int, number: int = 0) -> int:
        """The index of the sample at a position of the whole run, from 0; or that of its ``number``-th replacement."""
        epoch, place = divmod(position, self._samples)
        if number not in self._shuffled or self._shuffled[number][0] != epoch:
            order = list(range(self._samples))
            seed = derive_seed(self._seed, "replacement", number) if number else self._seed
            random.Random(derive_seed(seed, "epoch", epoch)).shuffle(order)
            self._shuffled[number] = (epoch, order)
        return self._shuffled[number][1][place]

    def played(self, groups: Sequence[Played]) -> None: ...

    def state(self) -> Mapping[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None: ...
