"""The reward of an environment of verifiers, with what each of its functions gives as a component."""

from __future__ import annotations

from typing import ClassVar

from rlfactory_core.errors import VerifierError
from rlfactory_core.types import Score, Trajectory

INFO = "verifiers"  # the key of a trajectory's info that has what the environment says of it


class Rubric:
    """What the environment has given the rollout; an episode that never reached its end gets 0."""

    inline: ClassVar[bool] = True

    async def score(self, trajectory: Trajectory) -> Score:
        """
        Raises:
            VerifierError: the environment's reward is no number.
        """
        given = trajectory.info.get(INFO)
        if not given:
            return Score(0.0)
        reward = given.get("reward")
        if not isinstance(reward, (int, float)):
            raise VerifierError(f"the environment gave the reward {reward!r:.80}")
        return Score(float(reward), components=dict(given.get("components") or {}))
