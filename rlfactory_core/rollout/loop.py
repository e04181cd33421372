"""The rollout loop: the model samples a turn, the turn is parsed, its calls are made, until the episode ends.

All engines use it, so that the same sampled ids give the same trajectory. A `Speaker` asks the model for its turns: in
tokens, which are never decoded and encoded again (`rollout`), or in messages (`chat_rollout`).
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from rlfactory_core.algo.advantages import LARGEST_REWARD
from rlfactory_core.clients.base import ChatClient
from rlfactory_core.context import ToolContext
from rlfactory_core.errors import BackendError, PluginError
from rlfactory_core.protocols import ChatFormat, Env, EnvStart, EnvStep, Sampler
from rlfactory_core.rollout.env_calls import EnvCalls
from rlfactory_core.rollout.episode import Episode, RolloutLimits
from rlfactory_core.rollout.speakers import MessageSpeaker, Speaker, TokenSpeaker
from rlfactory_core.types import Fault, FaultKind, Group, Message, StopReason, ToolResult, ToolSpec, Trajectory, Turn
from rlfactory_core.utils.aio import gather_all
from rlfactory_core.utils.seeds import derive_seed

_log = logging.getLogger(__name__)


async def rollout(episode: Episode, chat: ChatFormat, sampler: Sampler) -> Trajectory:
    """One attempt at a sample.

    If a token budget cuts a turn, the trajectory ends with ``LENGTH``; the turn's message is parsed, but its calls are
    not made. An observation after which no token fits ends it in the same way, and is not part of the ids. If a turn
    has more calls than ``max_tool_calls`` leaves, none of them is made, and the trajectory ends with ``TOOL_BUDGET``.
    If the prompt fills ``max_tokens``, the trajectory has no turns, and an infra fault masks it. If
    ``episode.history`` changes what a later turn sees, that turn begins a row, and ``max_tokens`` holds for each row.

    Args:
        sampler: gets the same list of ids at each turn, longer each time; it must not keep or change it.

    Raises:
        ValueError: the sampler returned different numbers of ids and log-probs.
        PluginError: the environment does not keep the contract of `protocols.Env`.
        Exception: whatever the sampler or a custom environment raises.
    """
    return await play_episode(episode, TokenSpeaker(episode, chat, sampler))


async def chat_rollout(episode: Episode, client: ChatClient) -> Trajectory:
    """One attempt at a sample in messages, for a model that only a server knows; it stops as `rollout` does.

    Its turns have no token ids, so the trajectory can be scored and read, but not trained on. ``max_tokens`` is
    compared with the server's token count of the last prompt and answer, so one observation may exceed it. If the
    server reports no counts, only ``max_turn_tokens`` holds. If the client fails, the trajectory ends with an infra
    fault, which masks it.
    """
    return await play_episode(episode, MessageSpeaker(episode, client))


async def rollout_group(episode: Episode, attempts: int, play: Callable[[Episode], Awaitable[Trajectory]]) -> Group:
    """Play all attempts at one sample concurrently.

    Attempt i is the episode with the seed ``derive_seed(seed, sample.id, i)`` and the session ``"<session>/<i>"``. If
    one raises, the others are cancelled and awaited.
    """
    sample, seed, session = episode.sample, episode.seed, episode.session
    trajectories = await gather_all(
        play(replace(episode, attempt=i, seed=derive_seed(seed, sample.id, i), session=f"{session}/{i}"))
        for i in range(attempts)
    )
    return Group(sample, tuple(trajectories))


async def play_episode(episode: Episode, speaker: Speaker) -> Trajectory:
    """Play an episode with any speaker; the speaker and the environment are always closed once."""
    started, played = time.perf_counter(), _Played()
    async with AsyncExitStack() as closing:
        context = ToolContext(episode.session, episode.sample)
        closing.push_async_callback(context.end)
        closing.push_async_callback(speaker.close)
        try:
            env = EnvCalls(_object(episode.make_env(episode.sample, context)), episode.limits.env_s)
            stop = await env.during(_play(episode.limits, env, speaker, played))
        except BackendError as error:
            played.faults.append(Fault(FaultKind.INFRA, "env", str(error), 0))
            stop = StopReason.FAULT
    return Trajectory(
        episode.sample,
        episode.attempt,
        tuple(played.turns),
        stop,
        tuple(played.faults),
        seconds=time.perf_counter() - started,
        tools=played.tools,
        info=played.info,
    )


@dataclass(slots=True)
class _Played:
    """What has been played of an episode."""

    turns: list[Turn] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    tools: tuple[ToolSpec, ...] = ()
    info: dict[str, Any] = field(default_factory=dict)


async def _play(limits: RolloutLimits, env: EnvCalls, speaker: Speaker, played: _Played) -> StopReason:
    """Play until something ends the episode; returns what."""
    turns, calls_left = played.turns, limits.max_tool_calls
    start = await env.call("start", EnvStart)
    played.tools, state = start.tools, start.state
    played.info.update(start.info)
    speaker.start(start)
    for number in count():
        try:
            if number and (summary := await speaker.shorten(number)):
                turns.append(summary)
            turn = await speaker.say(number)
        except BackendError as error:
            played.faults.append(Fault(FaultKind.INFRA, "model", str(error), len(turns)))
            return StopReason.FAULT
        if turn is None:
            played.faults += [] if turns else [limits.no_room()]
            return StopReason.LENGTH
        calls_left -= len(turn.message.tool_calls)
        before = time.perf_counter()
        step = await _step(env, turn, calls_left)
        tools_s = time.perf_counter() - before
        turns.append(replace(turn, results=step.results, reward=step.reward, tools_s=tools_s, state=state))
        state = step.state
        played.faults += _faults(step, len(turns) - 1)
        played.info.update(step.info)
        if step.stop is not None:
            return step.stop
        if number + 1 >= limits.max_turns:
            return StopReason.MAX_TURNS
        speaker.hear(step.messages)
    raise AssertionError  # the count never ends


async def _step(env: EnvCalls, turn: Turn, calls_left: int) -> EnvStep:
    """The environment's step, or the end if a budget has run out."""
    if turn.finish == "length":
        return EnvStep(stop=StopReason.LENGTH)
    if calls_left < 0:
        return EnvStep(stop=StopReason.TOOL_BUDGET)
    try:
        step = await env.call("step", EnvStep, turn.message)
    except BackendError as error:
        failed = ToolResult("", "env", "", FaultKind.INFRA, reason=str(error))
        return EnvStep(stop=StopReason.FAULT, results=(failed,))
    if wrong := _wrong(step):
        raise PluginError(f"{env.name}.step returned an EnvStep with {wrong}.")
    return step


def _wrong(step: Any) -> str:
    """What of a step does not keep the contract; empty if it does."""
    if step.stop is None and not step.messages:
        return (
            "neither messages nor a stop; expected what the model reads next, or why the episode is over, such as "
            "EnvStep(stop=StopReason.ENV_DONE)"
        )
    if not isinstance(step.messages, (tuple, list)) or not all(isinstance(each, Message) for each in step.messages):
        return f"messages={step.messages!r:.80}; expected Message objects in a tuple"
    if step.stop is not None and not isinstance(step.stop, StopReason):
        return f"stop={step.stop!r:.80}; expected a StopReason, such as StopReason.ENV_DONE"
    if not _is_finite(step.reward):
        return f"reward={step.reward!r:.80}; expected a finite number"
    return "" if isinstance(step.info, Mapping) else f"info={step.info!r:.80}; expected a dict"


def _is_finite(reward: Any) -> bool:
    """Of Python, numpy or torch."""
    try:
        return bool(abs(reward) <= LARGEST_REWARD)
    except (TypeError, ValueError, OverflowError):
        return False


def _object(env: Any) -> Env:
    """What `make_env` gave, which an author may have written otherwise than the contract says."""
    if inspect.iscoroutine(env):
        env.close()
        raise PluginError("make_env is async; write it with `def`, and wait in the environment's `start`.")
    if isinstance(env, type):
        raise PluginError(f"make_env gave the class {env.__name__}; expected an object, such as {env.__name__}(…).")
    made: Env = env
    return made


def _faults(step: EnvStep, turn: int) -> list[Fault]:
    found = [
        Fault(result.fault, result.name, result.reason or result.content, turn)
        for result in step.results
        if result.fault
    ]
    if step.stop is StopReason.FAULT and not any(fault.kind is FaultKind.INFRA for fault in found):
        found.append(Fault(FaultKind.INFRA, "env", "the environment ended the episode with a fault", turn))
    return found
