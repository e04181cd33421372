"""What a sampler of prompts is: it chooses the samples on which a step trains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlfactory_core.algo.advantages import GRPO, NO_DISCOUNT, Advantage, Credit
from rlfactory_core.algo.masking import is_trained
from rlfactory_core.types import Group

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


def teaches_nothing(group: Group, advantage: Advantage = GRPO, credit: Credit = NO_DISCOUNT) -> bool:
    """Whether no turn of any attempt was better or worse than expected.

    A group that lost too many attempts to faults is another matter.
    """
    live = [trajectory for trajectory in group.trajectories if not trajectory.masked]
    return is_trained(group) and not any(map(any, advantage(live, credit)))


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
