"""The order in which prompts are sampled; it is the same in every engine."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.algo.prompts import Played
from rlfactory_core.types import Sample
from rlfactory_core.utils.seeds import derive_seed


class PromptSchedule:
    """Consecutive cuts from an order of the samples that is shuffled anew each epoch.

    Args:
        samples: how many there are.
        per_step: prompts of one step.
    """

    def __init__(self, samples: int, per_step: int, seed: int) -> None:
        self._samples, self._per_step, self._seed = samples, per_step, seed
        self._shuffled: tuple[int, list[int]] = (-1, [])  # an epoch and its order

    def step(self, step: int) -> list[int]:
        """The indices of a step's samples; steps count from 1."""
        return [self.index(position) for position in range((step - 1) * self._per_step, step * self._per_step)]

    def index(self, position: int) -> int:
        """The index of the sample at a position of the whole run, from 0."""
        epoch, place = divmod(position, self._samples)
        if self._shuffled[0] != epoch:
            order = list(range(self._samples))
            random.Random(derive_seed(self._seed, "epoch", epoch)).shuffle(order)
            self._shuffled = (epoch, order)
        return self._shuffled[1][place]


class UniformPrompts:
    """Each sample once an epoch, in the order of `PromptSchedule`; replacements have orders of their own."""

    def __init__(self, samples: Sequence[Sample], per_step: int, seed: int) -> None:
        self._samples, self._per_step, self._seed = len(samples), per_step, seed
        self._schedule = PromptSchedule(self._samples, per_step, seed)
        self._replacements: dict[int, PromptSchedule] = {}  # by the replacement's number

    def step(self, step: int) -> list[int]:
        return self._schedule.step(step)

    def replacement(self, step: int, place: int, number: int) -> int:
        if number not in self._replacements:
            seed = derive_seed(self._seed, "replacement", number)
            self._replacements[number] = PromptSchedule(self._samples, self._per_step, seed)
        return self._replacements[number].index((step - 1) * self._per_step + place)

    def played(self, groups: Sequence[Played]) -> None: ...

    def state(self) -> Mapping[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None: ...
