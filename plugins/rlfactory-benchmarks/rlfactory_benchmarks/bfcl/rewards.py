"""Rewards of the leaderboard's task: its own verdict, and whether the calls are of functions that were offered."""

from __future__ import annotations

from typing import Any

from rlfactory_benchmarks.bfcl.conversation import HISTORY
from rlfactory_benchmarks.bfcl.verdicts import check_output
from rlfactory_core import Score, Trajectory

__all__ = ["KnownFunctions", "Official"]


class Official:
    """1 if the official checker accepts the calls of the turn, or of a conversation that has reached its end."""

    name = "bfcl"

    async def score(self, trajectory: Trajectory) -> Score:
        output: Any = trajectory.info.get(HISTORY)
        if "multi_turn" not in trajectory.sample.metadata["category"]:
            calls = [call for turn in trajectory.turns for call in turn.message.tool_calls]
            # A call that cannot be read is undecoded, as for a model with function calling.
            output = [{call.name: call.arguments_text if call.error else dict(call.arguments or {})} for call in calls]
        return Score(float(check_output(trajectory.sample.id, output, form="calls").valid))


class KnownFunctions:
    """1 if all calls are of functions that were offered, in the right form, and there are some unless none is right."""

    name = "bfcl_known_functions"

    async def score(self, trajectory: Trajectory) -> Score:
        calls = [
            call.error is None and call.name in {tool.name for tool in turn.tools or trajectory.tools}
            for turn in trajectory.turns
            for call in turn.message.tool_calls
        ]
        return Score(float(bool(calls or "irrelevance" in trajectory.sample.metadata["category"]) and all(calls)))
