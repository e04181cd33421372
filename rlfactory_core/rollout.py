"""The loop: generate, parse, invoke, and again. Token-in, token-out.

Every engine rolls out through here, so that the same sampled ids give the same trajectory in all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count

from rlfactory_core.protocols import ChatFormat, Env, EnvStep, Sampler, ToolContext
from rlfactory_core.types import (
    Fault,
    FaultKind,
    Group,
    Message,
    Sample,
    SampledTokens,
    SamplingParams,
    StopReason,
    Trajectory,
    Turn,
)

MakeEnv = Callable[[Sample, ToolContext], Env]


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """One attempt's budgets; see `config.RolloutConfig`."""

    max_turns: int
    max_tool_calls: int  # over the trajectory
    max_turn_tokens: int  # sampled in one turn
    max_tokens: int  # context and sampled, over the trajectory


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on the parts alone: the same in every process and Python."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


async def rollout(
    sample: Sample,
    attempt: int,
    *,
    make_env: MakeEnv,
    chat: ChatFormat,
    sampler: Sampler,
    limits: RolloutLimits,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
    session: str,
) -> Trajectory:
    """One attempt at a sample.

    A turn that is cut by a token budget ends the trajectory with ``LENGTH``: its message is parsed, its calls are not
    run. So does an observation that leaves no room for another token; it is not part of the ids. A turn with more calls
    than are left of ``max_tool_calls`` ends it with ``TOOL_BUDGET``, none of them run. A prompt that fills
    ``max_tokens`` gives a trajectory without turns.

    Args:
        make_env: called once; the environment is closed once, whatever happens.
        sampler: gets one list of ids that grows from turn to turn; it must not keep or change it.
        seed: each turn samples with ``derive_seed(seed, turn)``.
        session: unique among the rollouts of this sampler; also the tool context's ``trajectory_id``.

    Raises:
        ValueError: a sampler that gives another number of log-probs than ids.
        Exception: whatever the sampler or a custom environment raises.
    """
    started = time.perf_counter()
    env = make_env(sample, ToolContext(session, sample))
    turns: list[Turn] = []
    faults: list[Fault] = []
    try:
        start = await env.start()
        context = chat.initial_ids(start.messages, start.tools)
        ids: list[int] = []
        calls_left = limits.max_tool_calls
        for number in count():
            if len(ids) + len(context) >= limits.max_tokens:
                stop = StopReason.LENGTH
                break
            ids += context
            params = SamplingParams(
                max_tokens=min(limits.max_turn_tokens, limits.max_tokens - len(ids)),
                temperature=temperature,
                top_p=top_p,
                stop_token_ids=chat.stop_token_ids,
                seed=derive_seed(seed, number),
            )
            before = time.perf_counter()
            sampled = await sampler.sample(ids, params, session=session)
            sample_s = time.perf_counter() - before
            ids += sampled.token_ids
            message = chat.parse(sampled.token_ids)
            calls_left -= len(message.tool_calls)
            before = time.perf_counter()
            step = await _step(env, message, sampled, calls_left)
            turns.append(_turn(context, sampled, message, step, sample_s, time.perf_counter() - before))
            faults += _faults(step, number)
            if step.stop is not None:
                stop = step.stop
                break
            if number + 1 >= limits.max_turns:
                stop = StopReason.MAX_TURNS
                break
            context = chat.observation_ids(step.messages)
    finally:
        try:
            await sampler.release(session)
        finally:
            await env.close()
    seconds = time.perf_counter() - started
    return Trajectory(sample, attempt, tuple(turns), stop, tuple(faults), seconds=seconds, tools=start.tools)


async def rollout_group(
    sample: Sample,
    attempts: int,
    *,
    make_env: MakeEnv,
    chat: ChatFormat,
    sampler: Sampler,
    limits: RolloutLimits,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
    session: str,
) -> Group:
    """All attempts at one sample at once; see `rollout`.

    Attempt i samples with ``derive_seed(seed, sample.id, i)`` under the session ``"<session>/<i>"``. Where one raises,
    the others are cancelled and waited for.
    """
    tasks = [
        asyncio.ensure_future(
            rollout(
                sample,
                attempt,
                make_env=make_env,
                chat=chat,
                sampler=sampler,
                limits=limits,
                temperature=temperature,
                top_p=top_p,
                seed=derive_seed(seed, sample.id, attempt),
                session=f"{session}/{attempt}",
            )
        )
        for attempt in range(attempts)
    ]
    try:
        return Group(sample, tuple(await asyncio.gather(*tasks)))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _step(env: Env, message: Message, sampled: SampledTokens, calls_left: int) -> EnvStep:
    """The environment's answer, or ours where a budget has run out."""
    if sampled.finish == "length":
        return EnvStep(stop=StopReason.LENGTH)
    if calls_left < 0:
        return EnvStep(stop=StopReason.TOOL_BUDGET)
    return await env.step(message)


def _turn(
    context: tuple[int, ...], sampled: SampledTokens, message: Message, step: EnvStep, sample_s: float, tools_s: float
) -> Turn:
    if len(sampled.token_ids) != len(sampled.logprobs):
        raise ValueError(
            f"the sampler gave {len(sampled.token_ids)} ids and {len(sampled.logprobs)} log-probs; "
            "each sampled id needs its own."
        )
    return Turn(
        context_ids=context,
        sampled_ids=sampled.token_ids,
        logprobs=sampled.logprobs,
        message=message,
        results=step.results,
        reward=step.reward,
        finish=sampled.finish,
        version=sampled.version,
        sample_s=sample_s,
        tools_s=tools_s,
    )


def _faults(step: EnvStep, turn: int) -> list[Fault]:
    found = [Fault(result.fault, result.name, result.content, turn) for result in step.results if result.fault]
    if step.stop is StopReason.FAULT and not any(fault.kind is FaultKind.INFRA for fault in found):
        found.append(Fault(FaultKind.INFRA, "env", "the environment ended the episode over a fault of its own", turn))
    return found
