"""Samplers of prompts, which choose the samples on which a step trains; and the one that takes them in turn."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlfactory_core.types import Group, Sample
from rlfactory_core.utils.seeds import derive_seed

UNIFORM = "uniform"


@dataclass(frozen=True, slots=True)
class Played:
    """What became of a group in training."""

    index: int  # of its sample
    passes: float  # sum of the success score over its attempts, each within [0, 1]
    attempts: int  # that are not masked


class PromptSampler(Protocol):
    """Chooses training samples by their index; see the hook ``rlfactory_prompt_samplers``.

    Every process of a run has one and asks it the same, so its answers may depend only on the run's seed, the arguments
    and what it was told by `played`. It has no part in evaluations.
    """

    def step(self, step: int) -> list[int]:
        """The samples of a step, which counts from 1: ``per_step`` of them, in order."""

    def replacement(self, step: int, place: int, number: int) -> int:
        """The sample that replaces one which teaches nothing: the ``number``-th, from 1, at a place of the step."""

    def played(self, groups: Sequence[Played]) -> None:
        """Called after each step with all its groups, replacements included."""

    def state(self) -> Mapping[str, Any]:
        """What `played` has changed, for a checkpoint: texts, numbers, lists and dicts of them."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's state."""


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


def outcomes(groups: Iterable[Group], success: str, index: Mapping[str, int]) -> list[Played]:
    """What a step's groups tell a sampler.

    Args:
        success: the name of the score that means success; if a group has none, the reward takes its place.
        index: of the samples by their ids.
    """
    found = []
    for group in groups:
        live = [trajectory for trajectory in group.trajectories if not trajectory.masked]
        scores = [each.score.components.get(success, each.reward) if each.score else each.reward for each in live]
        passes = sum(min(1.0, max(0.0, score)) for score in scores)
        found.append(Played(index[group.sample.id], passes, len(live)))
    return found
