"""Samplers of prompts, which choose the samples on which a step trains; and the one that takes them in turn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import floor
from typing import Any, Protocol

from rlfactory_core.errors import ConfigError
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


MakePrompts = Callable[[Sequence[Sample], int, int], PromptSampler]
"""Makes a sampler of samples, with the number of prompts a step and the seed."""


def prompt_shares(weights: Mapping[str, float], per_step: int) -> dict[str, int]:
    """How many prompts of each step every task gets: by weight, rounded to the largest remainders, at least one.

    Args:
        weights: by the task's name.

    Raises:
        ConfigError: there are more tasks than prompts.
    """
    if len(weights) > per_step:
        raise ConfigError(
            f"train.prompts_per_step={per_step} for {len(weights)} tasks: each task needs a prompt in each step. "
            f"Set train.prompts_per_step to {len(weights)} or more."
        )
    spare, total = per_step - len(weights), sum(weights.values())
    wanted = {name: max(0.0, per_step * weight / total - 1) for name, weight in weights.items()}
    scale = spare / (sum(wanted.values()) or 1.0)
    exact = {name: scale * more for name, more in wanted.items()}
    shares = {name: 1 + floor(more) for name, more in exact.items()}
    left = sorted(exact, key=lambda name: floor(exact[name]) - exact[name])[: per_step - sum(shares.values())]
    return {name: share + (name in left) for name, share in shares.items()}


class PromptsByTask:
    """A sampler for each task, whose prompts stand side by side in a step: see `PromptSampler`.

    Args:
        samples: of all tasks; `Sample.task` names the task.
        shares: task -> prompts in each step.
    """

    def __init__(self, make: MakePrompts, samples: Sequence[Sample], shares: Mapping[str, int], seed: int) -> None:
        self._indices: dict[str, list[int]] = {name: [] for name in shares}
        for index, sample in enumerate(samples):
            self._indices[sample.task].append(index)
        self._samplers = {
            name: make([samples[index] for index in self._indices[name]], share, derive_seed(seed, "task", name))
            for name, share in shares.items()
        }
        self._first = dict(zip(shares, accumulate(shares.values(), initial=0), strict=False))  # place in a step

    def step(self, step: int) -> list[int]:
        return [self._indices[name][own] for name, each in self._samplers.items() for own in each.step(step)]

    def replacement(self, step: int, place: int, number: int) -> int:
        name = next(name for name in reversed(self._first) if self._first[name] <= place)
        return self._indices[name][self._samplers[name].replacement(step, place - self._first[name], number)]

    def played(self, groups: Sequence[Played]) -> None:
        for name, sampler in self._samplers.items():
            own = {index: place for place, index in enumerate(self._indices[name])}
            sampler.played([Played(own[g.index], g.passes, g.attempts) for g in groups if g.index in own])

    def state(self) -> Mapping[str, Any]:
        return {name: dict(sampler.state()) for name, sampler in self._samplers.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        for name, sampler in self._samplers.items():
            sampler.load(state[name])


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
