"""Trajectories as tests of rewards want them: what the model said, turn by turn; and a group's scorer."""

from __future__ import annotations

from dataclasses import replace

from rlfactory_core.types import Group, Message, Sample, Score, StopReason, ToolCall, ToolResult, Trajectory, Turn

CALL = ToolCall("call_0", "search", '{"query": "x"}', {"query": "x"})
SEARCH = Message("assistant", "Look.", tool_calls=(CALL,))


def trajectory(
    *messages: str | Message, answer: object = "Ann Lee", finish: str = "stop", result: str = ""
) -> Trajectory:
    turns = tuple(
        Turn(
            context_ids=(1,),
            sampled_ids=(2, 3),
            logprobs=(-0.5, -0.5),
            message=m if isinstance(m, Message) else Message("assistant", m),
            results=(ToolResult("call_0", "search", result),) if result else (),
            finish=finish,  # type: ignore[arg-type]
        )
        for m in messages
    )
    return Trajectory(Sample("s", "Who?", answer), 0, turns, StopReason.FINAL_ANSWER)


def attempts(count: int) -> list[Trajectory]:
    return [replace(trajectory("<answer>Ann Lee</answer>"), attempt=attempt) for attempt in range(count)]


class Ranks:
    """Scores a group's attempts by their places in it: 0, 1, 2, …"""

    async def score_group(self, group: Group) -> list[Score]:
        return [Score(float(index)) for index in range(len(group.trajectories))]
