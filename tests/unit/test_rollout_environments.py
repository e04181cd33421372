"""Environments that fail, hang or break their contract: the attempt is masked, or the author is told in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rlfactory_devkit import ScriptedSampler, ToyChatFormat
from scripted_env import Gone, Steps

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import BackendError, PluginError
from rlfactory_core.protocols import Env, EnvStart, EnvStep
from rlfactory_core.rollout import Episode, RolloutLimits, TokenModel, rollout
from rlfactory_core.types import Message, Sample, StopReason, Trajectory

SAMPLE = Sample("s", "Who?")
CHAT = ToyChatFormat()
LIMITS = RolloutLimits(max_turns=4, max_tool_calls=4, max_turn_tokens=200, max_tokens=2000)


def test_an_environment_whose_server_is_gone_masks_the_attempt() -> None:
    def unreachable(sample: Sample, context: ToolContext) -> Env:
        raise BackendError("the game server is gone")

    async def run(make: Callable[[Sample, ToolContext], Env]) -> Trajectory:
        return await rollout(Episode(SAMPLE, make, LIMITS, "x"), TokenModel(CHAT, ScriptedSampler(["a"], CHAT)))

    for make in (unreachable, lambda sample, context: Gone("start")):
        trajectory = asyncio.run(run(make))
        assert (trajectory.stop, trajectory.masked) == (StopReason.FAULT, True)
        assert trajectory.faults[0].message == "the game server is gone"


@pytest.mark.parametrize("method", ["start", "step"])
def test_an_environment_that_never_answers_masks_the_attempt(method: str) -> None:
    limits = replace(LIMITS, env_s=0.01)
    episode = Episode(SAMPLE, lambda sample, context: Gone(method, hangs=True), limits, "x")
    trajectory = asyncio.run(rollout(episode, TokenModel(CHAT, ScriptedSampler(["a"], CHAT))))
    assert (trajectory.stop, trajectory.masked) == (StopReason.FAULT, True)
    assert trajectory.faults[0].message == f"Gone.{method} has not ended after 0.01 s"


class SyncStart(Steps):
    def start(self) -> EnvStart:  # type: ignore[override]
        return EnvStart((Message("user", "Go."),))


class SyncStep(Steps):
    def step(self, message: Message) -> EnvStep:  # type: ignore[override]
        return EnvStep(stop=StopReason.ENV_DONE)


class StepOfText(Steps):
    async def step(self, message: Message) -> EnvStep:
        return "done"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (SyncStart(), r"SyncStart\.start is not async; write `async def start"),
        (SyncStep(), r"SyncStep\.step is not async"),
        (StepOfText(), r"StepOfText\.step returned 'done'; expected EnvStep"),
        (Steps(EnvStep()), r"Steps\.step returned an EnvStep with neither messages nor a stop"),
        (None, r"The environment is None, which has no method"),
        (Steps(EnvStep("On.")), r"with messages='On\.'; expected Message objects"),  # type: ignore[arg-type]
        (Steps(EnvStep(stop="done")), r"with stop='done'; expected a StopReason"),  # type: ignore[arg-type]
        (Steps(EnvStep(stop=StopReason.ENV_DONE, reward="1")), r"with reward='1'; expected"),  # type: ignore[arg-type]
        (Steps(EnvStep(stop=StopReason.ENV_DONE, reward=float("nan"))), r"with reward=nan; expected a finite"),
        (Steps(EnvStep(stop=StopReason.ENV_DONE, info=[1])), r"with info=\[1\]; expected a dict"),  # type: ignore[arg-type]
        (Steps, r"make_env gave the class Steps; expected an object, such as Steps"),
    ],
)
def test_an_environment_that_breaks_its_contract_is_told_in_words(env: Any, words: str) -> None:
    episode = Episode(SAMPLE, lambda sample, context: env, LIMITS, "x")
    sampler = ScriptedSampler(["a", "b"], CHAT)
    with pytest.raises(PluginError, match=words):
        asyncio.run(rollout(episode, TokenModel(CHAT, sampler)))


def test_an_environment_that_is_made_by_an_async_function_is_told_in_words() -> None:
    async def make(sample: Sample, context: ToolContext) -> Env:
        return Steps()

    episode = Episode(SAMPLE, make, LIMITS, "x")  # type: ignore[arg-type]
    with pytest.raises(PluginError, match="make_env is async; write it with `def`"):
        asyncio.run(rollout(episode, TokenModel(CHAT, ScriptedSampler(["a"], CHAT))))
