"""Shares the prompts of a step among the tasks of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import floor
from typing import Any

from rlfactory_core.algo.prompts import Played, PromptSampler
from rlfactory_core.errors import ConfigError
from rlfactory_core.types import Sample
from rlfactory_core.utils.seeds import derive_seed

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
