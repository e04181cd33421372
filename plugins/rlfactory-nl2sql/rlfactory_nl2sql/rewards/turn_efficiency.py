"""The reward ``turn_efficiency``: answering in few turns."""

from __future__ import annotations

from typing import ClassVar

from rlfactory_core import Score, Trajectory
from rlfactory_core.errors import ConfigError
from rlfactory_core.rewards import extract_answer


class TurnEfficiency:
    """1 for an answer within ``fewest`` turns, falling linearly to 0 at ``most``; 0 without an answer.

    It does not know whether the answer is right, and rewards an immediate guess the most. So its weight must be small
    compared with the gain from inspecting the database: at 0.1 a turn costs 0.1 / (most - fewest). Without a reward for
    right answers it teaches guessing.

    Raises:
        ConfigError: ``fewest`` is not below ``most``.
    """

    inline: ClassVar[bool] = True

    def __init__(self, fewest: int = 2, most: int = 8) -> None:
        if not 1 <= fewest < most:
            raise ConfigError(f"turn_efficiency: got fewest={fewest} and most={most}; expected 1 <= fewest < most.")
        self._fewest, self._most = fewest, most

    async def score(self, trajectory: Trajectory) -> Score:
        turns = len(trajectory.turns)
        if not turns or trajectory.turns[-1].message.tool_calls:
            return Score(0.0)
        if not extract_answer(trajectory.turns[-1].message.content):
            return Score(0.0)
        return Score(min(1.0, max(0.0, (self._most - turns) / (self._most - self._fewest))))
