"""Rollouts in messages: the same loop, the same stops, no token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlfactory_devkit import ScriptedSampler, ToyChatFormat
from scripted_env import attempts_at

from rlfactory_core.clients import ServerModel
from rlfactory_core.context import ToolContext
from rlfactory_core.errors import BackendError
from rlfactory_core.protocols import EnvStart, EnvStep, Request, Sampled
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.rollout import Episode, RolloutLimits, TokenModel, ToolEnv, rollout
from rlfactory_core.tools import DefaultToolManager, tool
from rlfactory_core.types import (
    FaultKind,
    Message,
    Sample,
    SamplingParams,
    StopReason,
    ToolCall,
    ToolSpec,
    Trajectory,
)
from rlfactory_core.utils.aio import gather_all
from rlfactory_core.utils.seeds import derive_seed

SAMPLE = Sample("s", "Who?")
LIMITS = RolloutLimits(max_turns=4, max_tool_calls=4, max_turn_tokens=200, max_tokens=2000)


@tool
async def look(where: str) -> str:
    return f"nothing {where}"


class Scripted(ServerModel):
    """A model that says these, and remembers what it was asked."""

    def __init__(self, *script: Message | Sampled | Exception | None) -> None:
        self.script = list(script)
        self.heard: list[tuple[Message, ...]] = []
        self.params: list[SamplingParams] = []
        self.tools: Sequence[ToolSpec] = ()

    async def answer(self, request: Request) -> Sampled | None:
        self.heard.append(tuple(request.messages))
        self.params.append(request.params)
        self.tools = request.tools
        said = self.script.pop(0)
        if isinstance(said, Exception):
            raise said
        return Sampled(said, "stop", 100 * len(request.messages), 10) if isinstance(said, Message) else said


def calling(*places: str) -> Message:
    calls = (
        ToolCall(f"call_{i}", "look", f'{{"where": "{place}"}}', {"where": place}) for i, place in enumerate(places)
    )
    return Message("assistant", "", tool_calls=tuple(calls))


ANSWER = Message("assistant", "<answer>him</answer>", reasoning="Hm.")


def tools_env(sample: Sample, context: ToolContext) -> ToolEnv:
    return ToolEnv(sample, DefaultToolManager([look]), context)


def play(client: Scripted, **limits: Any) -> Trajectory:
    episode = Episode(SAMPLE, tools_env, replace(LIMITS, **limits), "x", attempt=3, temperature=0.5, seed=5)
    return asyncio.run(rollout(episode, client))


def test_a_whole_conversation() -> None:
    client = Scripted(calling("left", "right"), ANSWER)
    trajectory = play(client)
    assert (trajectory.attempt, trajectory.stop, trajectory.tools) == (3, StopReason.FINAL_ANSWER, (look.spec,))
    first, second = trajectory.turns
    assert [result.content for result in first.results] == ["nothing left", "nothing right"]
    assert second.message == ANSWER
    assert (trajectory.ids, trajectory.loss_mask, trajectory.logprobs) == ((), (), ())
    assert tuple(client.tools) == (look.spec,)
    assert client.heard[1] == (
        Message("user", "Who?"),
        calling("left", "right"),
        Message("tool", "nothing left", tool_call_id="call_0", name="look"),
        Message("tool", "nothing right", tool_call_id="call_1", name="look"),
    )
    assert client.params == [SamplingParams(200, 0.5, 1.0, (), derive_seed(5, number)) for number in (0, 1)]


def test_the_same_words_give_the_same_trajectory_as_in_tokens() -> None:
    chat = ToyChatFormat()
    texts = ['<tool_call>{"name": "look", "arguments": {"where": "left"}}</tool_call>', "<answer>him</answer>"]
    said = [chat.parse(chat.encode(text)) for text in texts]
    episode = Episode(SAMPLE, tools_env, LIMITS, "x", attempt=3)
    in_tokens = asyncio.run(rollout(episode, TokenModel(chat, ScriptedSampler(texts, chat))))
    in_messages = play(Scripted(*said))

    def told(trajectory: Trajectory) -> Any:
        turns = [(turn.message, [result.content for result in turn.results]) for turn in trajectory.turns]
        return turns, trajectory.stop, trajectory.faults, trajectory.tools

    assert told(in_messages) == told(in_tokens)


@pytest.mark.parametrize(
    ("script", "limits", "stop", "turns"),
    [
        ([Message("assistant", "I give up")], {}, StopReason.NO_TOOL_CALL, 1),
        ([calling("left")] * 2, {"max_turns": 2}, StopReason.MAX_TURNS, 2),
        ([calling("left", "right")], {"max_tool_calls": 1}, StopReason.TOOL_BUDGET, 1),
        ([Sampled(calling("left"), "length")], {}, StopReason.LENGTH, 1),
        ([calling("left"), None], {}, StopReason.LENGTH, 1),
        ([calling("left")] * 2, {"max_tokens": 310}, StopReason.LENGTH, 2),  # 100 and 10, then 300 and 10
    ],
)
def test_ways_to_stop(script: list[Any], limits: dict[str, Any], stop: StopReason, turns: int) -> None:
    trajectory = play(Scripted(*script), **limits)
    assert (trajectory.stop, len(trajectory.turns), trajectory.masked) == (stop, turns, False)


def test_a_turn_gets_what_is_left_of_the_whole() -> None:
    client = Scripted(calling("left"), ANSWER)
    play(client, max_tokens=150)
    assert [params.max_tokens for params in client.params] == [150, 40]


def test_a_server_that_fails_masks_the_trajectory_and_keeps_what_was_said() -> None:
    trajectory = play(Scripted(calling("left"), BackendError("gone")))
    assert (trajectory.stop, trajectory.masked, len(trajectory.turns)) == (StopReason.FAULT, True, 1)
    (fault,) = trajectory.faults
    assert (fault.kind, fault.source, fault.message, fault.turn) == (FaultKind.INFRA, "model", "gone", 1)


class Unready:
    """An environment whose service is gone at one of its methods."""

    def __init__(self, where: str) -> None:
        self.where, self.closed = where, 0

    async def start(self) -> EnvStart:
        if self.where == "start":
            raise BackendError("not there")
        return EnvStart(SAMPLE.messages)

    async def step(self, message: Message) -> EnvStep:
        raise BackendError("not there")

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(("where", "turns"), [("start", 0), ("step", 1)])
def test_an_environment_whose_service_fails_masks_the_trajectory(where: str, turns: int) -> None:
    env = Unready(where)
    episode = Episode(SAMPLE, lambda sample, context: env, LIMITS, "s")
    trajectory = asyncio.run(rollout(episode, Scripted(ANSWER)))
    assert (trajectory.stop, trajectory.masked, len(trajectory.turns)) == (StopReason.FAULT, True, turns)
    (fault,) = trajectory.faults
    assert (fault.kind, fault.source, fault.message, fault.turn) == (FaultKind.INFRA, "env", "not there", 0)
    assert env.closed == 1


def test_a_group_has_its_own_seeds() -> None:
    client = Scripted(ANSWER, ANSWER, BackendError("gone"))
    episode = Episode(SAMPLE, tools_env, LIMITS, "g", seed=1)

    async def run() -> list[Trajectory]:
        return await gather_all(rollout(each, client) for each in attempts_at(episode, 3))

    played = asyncio.run(run())
    assert [trajectory.attempt for trajectory in played] == [0, 1, 2]
    assert [trajectory.masked for trajectory in played] == [False, False, True]
    assert [params.seed for params in client.params] == [derive_seed(derive_seed(1, "s", i), 0) for i in range(3)]


def test_they_are_saved_and_read_like_others(tmp_path: Path) -> None:
    odd = replace(calling("left"), content="half \ud83d")
    trajectory = play(Scripted(odd, ANSWER))
    folder = RunFolder(tmp_path)
    folder.write_trajectories("eval-after", [trajectory], lambda ids: "")
    (stored,) = folder.read_trajectories("eval-after")
    assert stored.trajectory.turns[1].message == ANSWER
    assert stored.trajectory.turns[0].message == odd
