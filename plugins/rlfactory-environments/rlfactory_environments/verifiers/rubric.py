"""The reward of an environment of verifiers, with what each of its functions gives as a component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rlfactory_core.errors import UsageError, VerifierError
from rlfactory_core.tasks.task import Task
from rlfactory_core.types import Group, Score, Trajectory
from rlfactory_environments.verifiers.environment import INFO


class Rubric:
    """What the environment has given the rollout; an episode that never reached its end gets 0."""

    inline: ClassVar[bool] = True

    async def score(self, trajectory: Trajectory) -> Score:
        return score_of(trajectory.info.get(INFO))


class GroupRubric:
    """What the environment gives to the rollouts of one row together."""

    deadline_s: ClassVar[float] = 600.0

    def __init__(self) -> None:
        self._task: Any = None

    async def open(self, task: Task) -> None:
        """
        Raises:
            UsageError: the run's task is another one.
        """
        if not hasattr(task, "score_group"):
            raise UsageError(
                "The reward verifiers_group_rubric scores the task verifiers, and this run has another one, or several."
            )
        self._task = task

    async def close(self) -> None:
        """The task has what there is to close."""

    async def score_group(self, group: Group) -> Sequence[Score]:
        found: Sequence[Mapping[str, Any] | None] = await self._task.score_group(
            [(each.info.get(INFO) or {}).get("rollout") for each in group.trajectories]
        )
        return [score_of(each) for each in found]


def score_of(given: Any) -> Score:
    """The score that an environment has given; 0 without one.

    Raises:
        VerifierError: it is no number.
    """
    if not given:
        return Score(0.0)
    reward = given.get("reward")
    if not isinstance(reward, (int, float)):
        raise VerifierError(f"the environment gave the reward {reward!r:.80}")
    counts = {"reward_errors": float(len(given.get("errors") or ()))}
    return Score(float(reward), components=dict(given.get("components") or {}), counts=counts)
