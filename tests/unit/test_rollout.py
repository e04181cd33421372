"""The loop: tokens in and out, every way to stop, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlfactory_devkit import ScriptedSampler, ToyChatFormat
from scripted_env import Gone, Steps, attempts_at

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.protocols import Env, EnvStart, EnvStep
from rlfactory_core.rollout import Episode, RolloutLimits, TokenModel, ToolEnv, env_calls, rollout
from rlfactory_core.tools import DefaultToolManager, tool
from rlfactory_core.types import (
    FaultKind,
    Message,
    Sample,
    SampledTokens,
    SamplingParams,
    StopReason,
    Trajectory,
)
from rlfactory_core.utils import aio
from rlfactory_core.utils.aio import gather_all
from rlfactory_core.utils.seeds import derive_seed

SAMPLE = Sample("s", "Who?")
CHAT = ToyChatFormat()
LIMITS = RolloutLimits(max_turns=4, max_tool_calls=4, max_turn_tokens=200, max_tokens=2000)


@tool
async def look(where: str) -> str:
    if where == "far":
        raise ToolUnavailableError("down")
    return f"nothing {where}"


def calling(*places: object) -> str:
    calls = ({"name": "look", "arguments": {"where": place}} for place in places)
    return "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls)


ANSWER = "<answer>him</answer>"


class Recorded:
    """An environment that counts how often it is closed."""

    def __init__(self, env: Env) -> None:
        self.env, self.closed = env, 0

    async def start(self) -> EnvStart:
        return await self.env.start()

    async def step(self, message: Message) -> EnvStep:
        return await self.env.step(message)

    async def close(self) -> None:
        self.closed += 1
        await self.env.close()


def tools_env(sample: Sample, context: ToolContext) -> ToolEnv:
    return ToolEnv(sample, DefaultToolManager([look]), context)


def play(
    script: Sequence[str] | Callable[[str, int], str],
    make_env: Callable[[Sample, ToolContext], Env] = tools_env,
    sampler: Any = None,
    **limits: Any,
) -> tuple[Trajectory, Any]:
    """One rollout; checks what must hold of all of them."""
    sampler = sampler or ScriptedSampler(script, CHAT)
    envs: list[Recorded] = []

    def make(sample: Sample, context: ToolContext) -> Recorded:
        envs.append(Recorded(make_env(sample, context)))
        return envs[-1]

    async def run() -> Trajectory:
        try:
            episode = Episode(SAMPLE, make, replace(LIMITS, **limits), "x", attempt=3, seed=5)
            return await rollout(episode, TokenModel(CHAT, sampler))
        finally:
            assert asyncio.all_tasks() == {asyncio.current_task()}

    try:
        trajectory = asyncio.run(run())
    finally:
        assert [env.closed for env in envs] == [1]
        assert sampler.released == ["x"]
    assert len(trajectory.ids) == len(trajectory.loss_mask) == len(trajectory.logprobs)
    assert sum(trajectory.loss_mask) == trajectory.num_sampled
    assert len(trajectory.ids) <= replace(LIMITS, **limits).max_tokens
    return trajectory, sampler


def test_a_whole_trajectory_token_by_token() -> None:
    trajectory, _ = play([calling("left", "right"), ANSWER])
    assert (trajectory.sample, trajectory.attempt, trajectory.stop) == (SAMPLE, 3, StopReason.FINAL_ANSWER)
    assert (trajectory.tools, trajectory.faults, trajectory.masked) == ((look.spec,), (), False)
    first, second = trajectory.turns
    assert first.context_ids == CHAT.initial_ids(SAMPLE.messages, [look.spec])
    assert CHAT.decode(first.sampled_ids) == calling("left", "right") + "<stop>"
    assert [result.content for result in first.results] == ["nothing left", "nothing right"]
    assert CHAT.decode(second.context_ids) == "<tool>nothing left<stop><tool>nothing right<stop><assistant>"
    assert second.message.content == ANSWER
    assert trajectory.ids == first.context_ids + first.sampled_ids + second.context_ids + second.sampled_ids
    assert {value for value, mask in zip(trajectory.logprobs, trajectory.loss_mask, strict=True) if mask} == {-0.5}
    assert trajectory.seconds >= first.sample_s + first.tools_s > 0


def test_each_turn_is_sampled_with_its_own_lasting_seed() -> None:
    _, sampler = play([calling("left"), ANSWER])
    assert [params.seed for params in sampler.params] == [derive_seed(5, 0), derive_seed(5, 1)]
    assert derive_seed(5, 0) == 1248755623252317243  # the same on every machine, or resumed runs differ
    assert sampler.params[0] == SamplingParams(200, 1.0, 1.0, CHAT.stop_token_ids, derive_seed(5, 0))


@pytest.mark.parametrize(
    ("script", "limits", "stop", "turns", "results"),
    [
        ([ANSWER], {}, StopReason.FINAL_ANSWER, 1, 0),
        (["I give up"], {}, StopReason.NO_TOOL_CALL, 1, 0),
        ([calling("left")] * 9, {"max_turns": 2}, StopReason.MAX_TURNS, 2, 2),
        ([calling("left")] * 9, {"max_turns": 9}, StopReason.TOOL_BUDGET, 5, 4),
        ([calling("left", "right")], {"max_tool_calls": 1}, StopReason.TOOL_BUDGET, 1, 0),
        ([calling("left"), calling("far"), ANSWER], {}, StopReason.FAULT, 2, 2),
        ([calling("left") + "and so on"], {"max_turn_tokens": 75}, StopReason.LENGTH, 1, 0),
    ],
)
def test_ways_to_stop(script: list[str], limits: dict[str, Any], stop: StopReason, turns: int, results: int) -> None:
    trajectory, _ = play(script, **limits)
    assert trajectory.stop is stop
    assert len(trajectory.turns) == turns
    assert sum(len(turn.results) for turn in trajectory.turns) == results


def test_a_turn_that_is_cut_is_read_but_not_run() -> None:
    trajectory, _ = play([calling("left") + "and so on"], max_turn_tokens=75)
    (turn,) = trajectory.turns
    assert (turn.finish, len(turn.sampled_ids)) == ("length", 75)
    assert [call.arguments for call in turn.message.tool_calls] == [{"where": "left"}]
    assert turn.results == ()


def test_the_last_turn_gets_what_is_left_of_the_whole() -> None:
    prompt = len(CHAT.initial_ids(SAMPLE.messages, [look.spec]))
    trajectory, sampler = play(["x" * 500], max_turn_tokens=400, max_tokens=prompt + 30)
    assert sampler.params[0].max_tokens == 30
    assert (trajectory.stop, trajectory.num_sampled) == (StopReason.LENGTH, 30)


def test_an_observation_that_does_not_fit_is_left_out() -> None:
    whole, _ = play([calling("left"), ANSWER])
    first, second = whole.turns
    fits = len(first.context_ids) + len(first.sampled_ids) + len(second.context_ids) + 1
    just, _ = play([calling("left"), ANSWER], max_tokens=fits)
    assert len(just.turns) == 2
    short, _ = play([calling("left"), ANSWER], max_tokens=fits - 1)
    assert (short.stop, len(short.turns), short.turns[0].results[0].fault) == (StopReason.LENGTH, 1, None)


def test_a_prompt_that_does_not_fit_gives_no_turns() -> None:
    trajectory, sampler = play([ANSWER], max_tokens=10)
    assert (trajectory.turns, trajectory.stop, trajectory.ids) == ((), StopReason.LENGTH, ())
    assert sampler.params == []
    (fault,) = trajectory.faults
    assert (fault.kind, fault.source, trajectory.masked) == (FaultKind.INFRA, "prompt", True)
    assert "no room for an answer in rollout.max_tokens=10" in fault.message


def test_faults_are_kept_with_their_turn() -> None:
    trajectory, _ = play([calling(7), "<tool_call>oops</tool_call>", calling("far")])
    assert [(fault.kind, fault.source, fault.turn) for fault in trajectory.faults] == [
        (FaultKind.POLICY, "look", 0),
        (FaultKind.POLICY, trajectory.turns[1].message.tool_calls[0].name, 1),
        (FaultKind.INFRA, "look", 2),
    ]
    assert trajectory.masked
    assert not replace(trajectory, faults=trajectory.faults[:2]).masked


def test_a_custom_environment_rewards_and_ends() -> None:
    steps = EnvStep((Message("user", "On."),), reward=0.25), EnvStep(stop=StopReason.ENV_DONE, reward=1.0)
    trajectory, _ = play(["a", "b"], lambda sample, context: Steps(*steps))
    assert [turn.reward for turn in trajectory.turns] == [0.25, 1.0]
    assert (trajectory.stop, trajectory.reward) == (StopReason.ENV_DONE, 1.25)


def test_scorers_see_the_last_state_that_an_environment_tells() -> None:
    class Told(Steps):
        async def start(self) -> EnvStart:
            return EnvStart((Message("user", "Go."),), info={"room": "hall", "keys": 0})

    steps = EnvStep((Message("user", "On."),), info={"room": "attic"}), EnvStep(stop=StopReason.ENV_DONE)
    trajectory, _ = play(["a", "b"], lambda sample, context: Told(*steps))
    assert trajectory.info == {"room": "attic", "keys": 0}


def test_an_environment_that_ends_with_a_fault_is_masked() -> None:
    trajectory, _ = play(["a"], lambda sample, context: Steps(EnvStep(stop=StopReason.FAULT)))
    assert trajectory.masked


def test_waiting_for_a_tool_is_no_hanging_environment() -> None:
    @tool(name="look")
    async def slow(where: str) -> str:
        await asyncio.sleep(0.05)
        return f"nothing {where}"

    async def run() -> Trajectory:
        manager = DefaultToolManager([slow])
        limits = replace(LIMITS, env_s=0.01)
        episode = Episode(SAMPLE, lambda sample, context: ToolEnv(sample, manager, context), limits, "x")
        try:
            return await rollout(episode, TokenModel(CHAT, ScriptedSampler([calling("here"), ANSWER], CHAT)))
        finally:
            await manager.close()

    assert asyncio.run(run()).faults == ()


@pytest.mark.parametrize("unlimited", [False, True])
def test_a_step_of_ones_own_in_an_environment_of_tools_has_a_deadline(unlimited: bool) -> None:
    class Slow(ToolEnv):
        async def step(self, message: Message) -> EnvStep:
            await asyncio.sleep(0.05)
            return await super().step(message)

    class Unlimited(Slow):
        deadline_s = math.inf

    async def run() -> Trajectory:
        kind, limits = (Unlimited if unlimited else Slow), replace(LIMITS, env_s=0.01)
        episode = Episode(SAMPLE, lambda sample, context: kind(sample, DefaultToolManager([]), context), limits, "x")
        return await rollout(episode, TokenModel(CHAT, ScriptedSampler([ANSWER], CHAT)))

    faults = [fault.message for fault in asyncio.run(run()).faults]
    assert faults == ([] if unlimited else ["Slow.step has not ended after 0.01 s"])


@pytest.mark.parametrize("hangs", [False, True])
def test_what_an_environment_does_not_close_takes_nothing_from_the_episode(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env_calls, "CLOSE_S", 0.01)
    trajectory, _ = play(["a"], lambda sample, context: Gone("close", hangs=hangs))
    assert (trajectory.stop, trajectory.reward, trajectory.faults) == (StopReason.ENV_DONE, 1.0, ())


class Stubborn(Steps):
    """One of its methods never ends, and ignores its cancellation."""

    def __init__(self, method: str) -> None:
        super().__init__(EnvStep(stop=StopReason.ENV_DONE, reward=1.0))
        setattr(self, method, self.go_on)
        self.reached = asyncio.Event()

    async def go_on(self, *_arguments: Any) -> Any:
        self.reached.set()
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("method", "stop"), [("start", StopReason.FAULT), ("step", StopReason.FAULT), ("close", StopReason.ENV_DONE)]
)
@pytest.mark.parametrize("cancels", [False, True])
def test_an_environment_that_ignores_its_cancellation_is_left_behind(
    method: str, stop: StopReason, cancels: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(env_calls, "CLOSE_S", 0.01)
    monkeypatch.setattr(aio, "GRACE_S", 0.01)

    async def run() -> Trajectory:
        env, limits = Stubborn(method), replace(LIMITS, env_s=60.0 if cancels else 0.01)
        episode = Episode(SAMPLE, lambda sample, context: env, limits, "x")
        playing = asyncio.ensure_future(rollout(episode, TokenModel(CHAT, ScriptedSampler(["a"], CHAT))))
        try:
            if cancels:
                await env.reached.wait()
                playing.cancel()
            return await playing
        finally:
            aio.forget_abandoned()

    if cancels:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(run())
    else:
        trajectory = asyncio.run(run())
        assert trajectory.stop is stop
        assert trajectory.masked == (stop is StopReason.FAULT)
        assert "the environment Stubborn ignores its cancellation" in caplog.text


class Broken(ScriptedSampler):
    def __init__(self, wrong: Callable[[SampledTokens], SampledTokens]) -> None:
        super().__init__([ANSWER], CHAT)
        self.wrong = wrong

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        return self.wrong(await super().sample(ids, params, session=session))


def test_failures_let_go_of_everything() -> None:
    """`play` checks that the session is released and the environment closed."""

    def fail(sampled: SampledTokens) -> SampledTokens:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        play([], sampler=Broken(fail))
    with pytest.raises(LookupError, match="no such world"):
        play(["a"], lambda sample, context: Lost())
    with pytest.raises(ValueError, match="21 ids and 0 log-probs"):
        play([], sampler=Broken(lambda sampled: replace(sampled, logprobs=())))


class Lost(Steps):
    async def start(self) -> EnvStart:
        raise LookupError("no such world")


def group(sampler: Any, attempts: int = 3, seed: int = 1) -> Coroutine[Any, Any, list[Trajectory]]:
    episode = Episode(SAMPLE, tools_env, LIMITS, "g", seed=seed)
    return gather_all(rollout(each, TokenModel(CHAT, sampler)) for each in attempts_at(episode, attempts))


def test_a_group_is_all_attempts_at_one_sample() -> None:
    sampler = ScriptedSampler(
        lambda session, turn: calling("left") if turn == 0 else f"<answer>{session}</answer>", CHAT
    )
    played = asyncio.run(group(sampler))
    assert [item.attempt for item in played] == [0, 1, 2]
    assert [item.turns[-1].message.content for item in played] == [f"<answer>g/{i}</answer>" for i in range(3)]
    assert len({params.seed for params in sampler.params}) == 6
    assert sorted(sampler.released) == ["g/0", "g/1", "g/2"]


def test_an_attempt_that_fails_ends_its_group_cleanly() -> None:
    class Stuck(ScriptedSampler):
        async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
            if session == "g/1":
                raise RuntimeError("broken")
            await asyncio.Event().wait()
            raise AssertionError("nothing wakes it")

    sampler = Stuck([], CHAT)

    async def run() -> None:
        with pytest.raises(RuntimeError, match="broken"):
            await group(sampler)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
    assert sorted(sampler.released) == ["g/0", "g/1", "g/2"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.text() | st.sampled_from([calling("left"), calling("left", "far"), ANSWER, "<tool_call>{"]), min_size=9
    ),
    st.integers(1, 9),
    st.integers(1, 60),
    st.integers(1, 700),
)
def test_the_invariants_hold_whatever_is_sampled(
    script: list[str], max_turns: int, max_turn_tokens: int, max_tokens: int
) -> None:
    trajectory, sampler = play(script, max_turns=max_turns, max_turn_tokens=max_turn_tokens, max_tokens=max_tokens)
    assert len(trajectory.turns) == len(sampler.params) <= max_turns
    for turn, params in zip(trajectory.turns, sampler.params, strict=True):
        assert len(turn.sampled_ids) <= params.max_tokens <= max_turn_tokens
