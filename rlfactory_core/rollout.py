"""The loop: generate, parse, invoke, and again. Token-in, token-out.

Every engine rolls out through here, so that the same sampled ids give the same trajectory in all of them. How a model
says its turns is a `Speaker`; the one here speaks in tokens, that of `chat_rollout` in messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count
from typing import Protocol, TypeVar

from rlfactory_core.errors import BackendError
from rlfactory_core.protocols import ChatFormat, Env, EnvStart, EnvStep, Sampler
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.types import (
    Fault,
    FaultKind,
    Group,
    Message,
    Sample,
    SamplingParams,
    StopReason,
    ToolSpec,
    Trajectory,
    Turn,
)

MakeEnv = Callable[[Sample, ToolContext], Env]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """One attempt's budgets; see `config.RolloutConfig`."""

    max_turns: int
    max_tool_calls: int  # over the trajectory
    max_turn_tokens: int  # sampled in one turn
    max_tokens: int  # context and sampled, over the trajectory


@dataclass(frozen=True, slots=True)
class Episode:
    """One attempt at a sample: all that is settled before the model speaks."""

    sample: Sample
    make_env: MakeEnv  # called once; the environment is closed once, whatever happens
    limits: RolloutLimits
    session: str  # unique among the rollouts of a sampler; also the tool context's ``trajectory_id``
    attempt: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0

    def sampling(self, turn: int, room: int, stop_token_ids: tuple[int, ...] = ()) -> SamplingParams:
        """How to sample a turn, with ``derive_seed(seed, turn)``; ``room``: tokens left for the whole trajectory."""
        limit, seed = min(self.limits.max_turn_tokens, room), derive_seed(self.seed, turn)
        return SamplingParams(limit, self.temperature, self.top_p, stop_token_ids, seed)


class Speaker(Protocol):
    """The model's part in one episode."""

    def start(self, start: EnvStart) -> None: ...

    async def say(self, number: int) -> Turn | None:
        """Turn ``number`` (from 0), still without the environment's answer; None where no room for a token is left.

        Raises:
            BackendError: the model's server gives no answer: an infra fault, which ends and masks the trajectory.
        """
        ...

    def hear(self, messages: Sequence[Message]) -> None:
        """The environment's answer to the last turn."""
        ...

    async def close(self) -> None: ...


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on the parts alone: the same in every process and Python."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


async def rollout(episode: Episode, chat: ChatFormat, sampler: Sampler) -> Trajectory:
    """One attempt at a sample.

    A turn that is cut by a token budget ends the trajectory with ``LENGTH``: its message is parsed, its calls are not
    run. So does an observation that leaves no room for another token; it is not part of the ids. A turn with more calls
    than are left of ``max_tool_calls`` ends it with ``TOOL_BUDGET``, none of them run. A prompt that fills
    ``max_tokens`` gives a trajectory without turns.

    Args:
        sampler: gets one list of ids that grows from turn to turn; it must not keep or change it.

    Raises:
        ValueError: a sampler that gives another number of log-probs than ids.
        Exception: whatever the sampler or a custom environment raises.
    """
    return await play_episode(episode, _TokenSpeaker(episode, chat, sampler))


async def rollout_group(episode: Episode, attempts: int, play: Callable[[Episode], Awaitable[Trajectory]]) -> Group:
    """All attempts at one sample at once.

    Attempt i is the episode with ``derive_seed(seed, sample.id, i)`` and the session ``"<session>/<i>"``. Where one
    raises, the others are cancelled and waited for.
    """
    sample, seed, session = episode.sample, episode.seed, episode.session
    trajectories = await gather_all(
        play(replace(episode, attempt=i, seed=derive_seed(seed, sample.id, i), session=f"{session}/{i}"))
        for i in range(attempts)
    )
    return Group(sample, tuple(trajectories))


async def play_episode(episode: Episode, speaker: Speaker) -> Trajectory:
    """The loop itself, for any speaker; closes the speaker and the environment once each, whatever happens."""
    sample, limits = episode.sample, episode.limits
    started = time.perf_counter()
    context = ToolContext(episode.session, sample)
    env = episode.make_env(sample, context)
    turns: list[Turn] = []
    faults: list[Fault] = []
    try:
        start = await env.start()
        speaker.start(start)
        calls_left = limits.max_tool_calls
        for number in count():
            try:
                turn = await speaker.say(number)
            except BackendError as error:
                faults.append(Fault(FaultKind.INFRA, "model", str(error), number))
                stop = StopReason.FAULT
                break
            if turn is None:
                stop = StopReason.LENGTH
                break
            calls_left -= len(turn.message.tool_calls)
            before = time.perf_counter()
            step = await _step(env, turn, calls_left)
            tools_s = time.perf_counter() - before
            turns.append(replace(turn, results=step.results, reward=step.reward, tools_s=tools_s))
            faults += _faults(step, number)
            if step.stop is not None:
                stop = step.stop
                break
            if number + 1 >= limits.max_turns:
                stop = StopReason.MAX_TURNS
                break
            speaker.hear(step.messages)
    finally:
        try:
            await speaker.close()
        finally:
            try:
                await env.close()
            finally:
                await context.end()
    seconds = time.perf_counter() - started
    return Trajectory(sample, episode.attempt, tuple(turns), stop, tuple(faults), seconds=seconds, tools=start.tools)


async def gather_all(works: Iterable[Awaitable[Result]]) -> list[Result]:
    """All results in order; where one raises, the others are cancelled and waited for."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _TokenSpeaker:
    """Speaks through a sampler; keeps the ids, which only grow."""

    def __init__(self, episode: Episode, chat: ChatFormat, sampler: Sampler) -> None:
        self._episode, self._chat, self._sampler = episode, chat, sampler
        self._ids: list[int] = []
        self._context: tuple[int, ...] = ()  # what the next turn appends before it samples
        self._tools: tuple[ToolSpec, ...] = ()

    def start(self, start: EnvStart) -> None:
        self._tools = start.tools
        self._context = self._chat.initial_ids(start.messages, start.tools)

    async def say(self, number: int) -> Turn | None:
        ids, context, most = self._ids, self._context, self._episode.limits.max_tokens
        if len(ids) + len(context) >= most:
            return None
        ids += context
        params = self._episode.sampling(number, most - len(ids), self._chat.stop_token_ids)
        before = time.perf_counter()
        sampled = await self._sampler.sample(ids, params, session=self._episode.session)
        sample_s = time.perf_counter() - before
        if len(sampled.token_ids) != len(sampled.logprobs):
            raise ValueError(
                f"the sampler gave {len(sampled.token_ids)} ids and {len(sampled.logprobs)} log-probs; "
                "each sampled id needs its own."
            )
        ids += sampled.token_ids
        return Turn(
            context_ids=context,
            sampled_ids=sampled.token_ids,
            logprobs=sampled.logprobs,
            message=self._chat.parse(sampled.token_ids, self._tools),
            finish=sampled.finish,
            version=sampled.version,
            sample_s=sample_s,
        )

    def hear(self, messages: Sequence[Message]) -> None:
        self._context = self._chat.observation_ids(messages)

    async def close(self) -> None:
        await self._sampler.release(self._episode.session)


async def _step(env: Env, turn: Turn, calls_left: int) -> EnvStep:
    """The environment's answer, or ours where a budget has run out."""
    if turn.finish == "length":
        return EnvStep(stop=StopReason.LENGTH)
    if calls_left < 0:
        return EnvStep(stop=StopReason.TOOL_BUDGET)
    return await env.step(turn.message)


def _faults(step: EnvStep, turn: int) -> list[Fault]:
    found = [Fault(result.fault, result.name, result.content, turn) for result in step.results if result.fault]
    if step.stop is StopReason.FAULT and not any(fault.kind is FaultKind.INFRA for fault in found):
        found.append(Fault(FaultKind.INFRA, "env", "the environment ended the episode over a fault of its own", turn))
    return found
