"""The default environment: when an episode goes on and why it ends."""

from __future__ import annotations

import asyncio

import pytest

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import ToolError, ToolUnavailableError
from rlfactory_core.protocols import EnvStart, EnvStep
from rlfactory_core.rollout import ToolEnv
from rlfactory_core.tools import DefaultToolManager, tool
from rlfactory_core.types import FaultKind, Message, Sample, StopReason, ToolCall

SAMPLE = Sample("s", "Who?")


@tool
async def look(where: str, context: ToolContext) -> str:
    """Look."""
    if where == "nowhere":
        raise ToolError("there is no such place")
    if where == "far":
        raise ToolUnavailableError("down")
    return f"{context.trajectory_id} looks {where}"


def play(message: Message) -> tuple[EnvStart, EnvStep]:
    async def run() -> tuple[EnvStart, EnvStep]:
        env = ToolEnv(SAMPLE, DefaultToolManager([look]), ToolContext("t7", SAMPLE))
        try:
            return await env.start(), await env.step(message)
        finally:
            await env.close()

    return asyncio.run(run())


def calls(*places: str) -> Message:
    return Message(
        "assistant",
        "<answer>early</answer>",
        tool_calls=tuple(ToolCall(f"c{i}", "look", "", {"where": place}) for i, place in enumerate(places)),
    )


def test_it_starts_with_the_sample_and_the_tools() -> None:
    start, _ = play(Message("assistant", ""))
    assert start == EnvStart((Message("user", "Who?"),), (look.spec,))


def test_calls_become_observations_in_their_order() -> None:
    _, step = play(calls("left", "nowhere", "right"))
    assert step.messages == (
        Message("tool", "t7 looks left", tool_call_id="c0", name="look"),
        Message("tool", "Error: there is no such place", tool_call_id="c1", name="look"),
        Message("tool", "t7 looks right", tool_call_id="c2", name="look"),
    )
    assert step.stop is None
    assert [result.fault for result in step.results] == [None, FaultKind.TOOL, None]


def test_an_infra_fault_ends_it() -> None:
    _, step = play(calls("left", "far"))
    assert step.stop is StopReason.FAULT
    assert [result.fault for result in step.results] == [None, FaultKind.INFRA]


@pytest.mark.parametrize(
    ("content", "stop"),
    [
        ("so <answer>\nhim\n</answer>.", StopReason.FINAL_ANSWER),
        ("<answer>him", StopReason.NO_TOOL_CALL),
        ("", StopReason.NO_TOOL_CALL),
    ],
)
def test_a_turn_without_calls_ends_it(content: str, stop: StopReason) -> None:
    _, step = play(Message("assistant", content))
    assert step == EnvStep(stop=stop)


def test_what_counts_as_an_answer_can_be_replaced() -> None:
    async def run() -> EnvStep:
        env = ToolEnv(SAMPLE, DefaultToolManager([]), ToolContext("t", SAMPLE), final_answer=bool)
        return await env.step(Message("assistant", "him"))

    assert asyncio.run(run()).stop is StopReason.FINAL_ANSWER
