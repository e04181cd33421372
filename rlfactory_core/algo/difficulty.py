"""Samples prompts by what can still be learnt from them."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any

from rlfactory_core.algo.prompts import Played
from rlfactory_core.types import Sample
from rlfactory_core.utils.seeds import derive_seed

KEPT = 0.5  # of a sample's earlier attempts at each new group, because the policy has changed since
SLICE_KEPT = 0.9  # likewise of a slice
PRIOR = 2.0  # attempts that a slice's pass rate counts for in the estimate of its samples
LEAST = 0.01  # weight of a sample that is always or never solved, so that it is looked at again; the largest is 0.26
TRIES = 100  # draws until a sample may come twice in a step


class DifficultyPrompts:
    """Draws samples with weights p (1 - p) + 0.01, with the pass rate p of each.

    p (1 - p) is the variance of an attempt's success, and so the expected size of a group's advantages. p is estimated
    from the attempts so far, the later ones counting more. A sample that was not played has the pass rate of its slice.
    """

    def __init__(self, samples: Sequence[Sample], per_step: int, seed: int) -> None:
        self._per_step, self._seed = per_step, seed
        self._ids = [sample.id for sample in samples]
        self._slices = [sample.slice for sample in samples]
        self._by_id: dict[str, list[float]] = {}  # passes and attempts
        self._by_slice: dict[str, list[float]] = {}
        self._cumulative: list[float] = []  # of the weights; empty: to be computed
        self._drawn: tuple[int, list[int]] = (0, [])  # a step and its samples

    def step(self, step: int) -> list[int]:
        rng = random.Random(derive_seed(self._seed, "difficulty", step))
        chosen: list[int] = []
        while len(chosen) < self._per_step:
            chosen.append(self._draw(rng, chosen))
        self._drawn = (step, chosen)
        return chosen

    def replacement(self, step: int, place: int, number: int) -> int:
        rng = random.Random(derive_seed(self._seed, "difficulty", step, place, number))
        return self._draw(rng, self._drawn[1] if self._drawn[0] == step else ())

    def played(self, groups: Sequence[Played]) -> None:
        for group in groups:
            _add(self._by_id, self._ids[group.index], group, KEPT)
            _add(self._by_slice, self._slices[group.index], group, SLICE_KEPT)
        self._cumulative = []

    def state(self) -> Mapping[str, Any]:
        return {"samples": self._by_id, "slices": self._by_slice}

    def load(self, state: Mapping[str, Any]) -> None:
        self._by_id, self._by_slice = dict(state["samples"]), dict(state["slices"])
        self._cumulative = []

    def pass_rate(self, index: int) -> float:
        """The estimate for a sample."""
        passes, attempts = self._by_slice.get(self._slices[index], (1.0, 2.0))
        usual = passes / attempts if attempts else 0.5
        passes, attempts = self._by_id.get(self._ids[index], (0.0, 0.0))
        return (passes + PRIOR * usual) / (attempts + PRIOR)

    def _draw(self, rng: random.Random, taken: Collection[int]) -> int:
        if not self._cumulative:
            rates = map(self.pass_rate, range(len(self._ids)))
            self._cumulative = list(accumulate(rate * (1.0 - rate) + LEAST for rate in rates))
        for _ in range(TRIES):
            index = rng.choices(range(len(self._ids)), cum_weights=self._cumulative)[0]
            if index not in taken:
                break
        return index


def _add(sums: dict[str, list[float]], key: str, group: Played, kept: float) -> None:
    passes, attempts = sums.get(key, (0.0, 0.0))
    sums[key] = [kept * passes + group.passes, kept * attempts + group.attempts]
