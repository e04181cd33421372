"""The rollout loop: the model samples a turn, the turn is parsed, its calls are made, until the episode ends.

All engines use it, so that the same sampled ids give the same trajectory.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from rlfactory_core.algo.advantages import LARGEST_REWARD
from rlfactory_core.context import ToolContext
from rlfactory_core.errors import BackendError, PluginError
from rlfactory_core.protocols import Env, EnvStart, EnvStep, Model
from rlfactory_core.rollout.env_calls import Limit, TimedEnv, called, checked
from rlfactory_core.rollout.episode import Episode, RolloutLimits
from rlfactory_core.rollout.transcript import Transcript
from rlfactory_core.types import Fault, FaultKind, Message, StopReason, ToolResult, ToolSpec, Trajectory, Turn


async def rollout(episode: Episode, model: Model) -> Trajectory:
    """One attempt at a sample; the environment is always closed, and the model's session released.

    If a token budget cuts a turn, the trajectory ends with ``LENGTH``; the turn's message is parsed, but its calls are
    not made. An observation after which no token fits ends it in the same way, and is not part of the ids. If a turn
    has more calls than ``max_tool_calls`` leaves, none of them is made, and the trajectory ends with ``TOOL_BUDGET``.
    If the prompt fills ``max_tokens``, the trajectory has no turns, and an infra fault masks it. If
    ``episode.history`` changes what a later turn sees, that turn begins a row, and ``max_tokens`` holds for each row.

    Turns of a model without ids can be scored and read, but not trained on. ``max_tokens`` is compared with its
    server's token count of the last prompt and answer, so one observation may exceed it. If the server fails, the
    trajectory ends with an infra fault, which masks it.

    Raises:
        ValueError: the sampler returned different numbers of ids and log-probs.
        PluginError: the environment does not keep the contract of `protocols.Env`.
        Exception: whatever the sampler or a custom environment raises.
    """
    started, played, transcript = time.perf_counter(), _Played(), Transcript(episode, model)
    async with AsyncExitStack() as closing:
        context = ToolContext(episode.session, episode.sample)
        closing.push_async_callback(context.end)
        closing.push_async_callback(transcript.close)
        try:
            env = TimedEnv(_checked_env(episode.make_env(episode.sample, context)), episode.limits.env_s)
            playing = _play(episode.limits, env, transcript, played)
            await (playing if env.seconds is None else env.watch(playing))
        except BackendError as error:
            if played.stop is None:  # else the episode is complete; only `close` hangs
                played.end(StopReason.FAULT, Fault(FaultKind.INFRA, "env", str(error), 0))
    assert played.stop is not None
    return Trajectory(
        episode.sample,
        episode.attempt,
        tuple(played.turns),
        played.stop,
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
    stop: StopReason | None = None

    def end(self, stop: StopReason, *faults: Fault) -> None:
        self.stop = stop
        self.faults += faults

    def add(self, turn: Turn, step: EnvStep, tools_s: float, state: str) -> None:
        """Take a turn, and the environment's step."""
        self.turns.append(replace(turn, results=step.results, reward=step.reward, tools_s=tools_s, state=state))
        self.faults += _faults(step, len(self.turns) - 1)
        self.info.update(step.info)


async def _play(limits: RolloutLimits, env: TimedEnv, transcript: Transcript, played: _Played) -> None:
    """Play until something ends the episode, and close the environment."""
    try:
        async with Limit(env, "start"):
            start = checked(env.env, "start", EnvStart, await called(env.env, "start"))
        played.tools, state, calls_left = start.tools, start.state, limits.max_tool_calls
        played.info.update(start.info)
        transcript.begin(start)
        for number in count():
            try:
                if number and (summary := await transcript.revise(number)):
                    played.turns.append(summary)
                turn = await transcript.turn(number)
            except BackendError as error:
                played.end(StopReason.FAULT, Fault(FaultKind.INFRA, "model", str(error), len(played.turns)))
                return
            if turn is None:
                played.end(StopReason.LENGTH, *([] if played.turns else [limits.no_room()]))
                return
            calls_left -= len(turn.message.tool_calls)
            before = time.perf_counter()
            if turn.finish == "length":
                step = EnvStep(stop=StopReason.LENGTH)
            elif calls_left < 0:
                step = EnvStep(stop=StopReason.TOOL_BUDGET)
            else:
                try:
                    async with Limit(env, "step"):
                        step = checked(env.env, "step", EnvStep, await called(env.env, "step", turn.message))
                except BackendError as error:
                    failed = ToolResult("", "env", "", FaultKind.INFRA, reason=str(error))
                    step = EnvStep(stop=StopReason.FAULT, results=(failed,))
                if wrong := _wrong(step):
                    raise PluginError(f"{env.name}.step returned an EnvStep with {wrong}.")
            played.add(turn, step, time.perf_counter() - before, state)
            state = step.state
            stop = step.stop or (StopReason.MAX_TURNS if number + 1 >= limits.max_turns else None)
            if stop is not None:
                played.end(stop)
                return
            transcript.observe(step)
    finally:
        await env.close()


def _wrong(step: Any) -> str:
    """How a step breaks the contract; empty if it keeps it."""
    if step.stop is None and not step.messages:
        return (
            "neither messages nor a stop; expected what the model reads next, or why the episode is over, such as "
            "EnvStep(stop=StopReason.ENV_DONE)"
        )
    if not isinstance(step.messages, (tuple, list)) or not all(isinstance(each, Message) for each in step.messages):
        return f"messages={step.messages!r:.80}; expected Message objects in a tuple"
    if step.stop is not None and not isinstance(step.stop, StopReason):
        return f"stop={step.stop!r:.80}; expected a StopReason, such as StopReason.ENV_DONE"
    if step.tools is not None and not all(isinstance(each, ToolSpec) for each in step.tools):
        return f"tools={step.tools!r:.80}; expected ToolSpec objects in a tuple"
    if not _is_finite(step.reward):
        return f"reward={step.reward!r:.80}; expected a finite number"
    return "" if isinstance(step.info, Mapping) else f"info={step.info!r:.80}; expected a dict"


def _is_finite(reward: Any) -> bool:
    """Of Python, numpy or torch."""
    try:
        return bool(abs(reward) <= LARGEST_REWARD)
    except (TypeError, ValueError, OverflowError):
        return False


def _checked_env(env: Any) -> Env:
    """What `make_env` returned, if it is an environment; its author may have broken the contract."""
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
