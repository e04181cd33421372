"""Concurrent episodes do not affect each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from rlfactory_core.protocols import Env
from rlfactory_core.runner import Policy, TaskBench, constant, oracle
from rlfactory_core.tiny import answer_text
from rlfactory_core.types import Sample, Trajectory
from rlfactory_core.utils.aio import gather_all
from rlfactory_devkit.checks.blocking import LoopTimes, blockers
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import Evidence, seen, wrong
from rlfactory_devkit.examples import example_calls, random_calls
from rlfactory_devkit.rewards import exact_rewards, of
from rlfactory_devkit.wrappers import EnvWrapper

_SAMPLES = 3
_TURNS = 3  # of random calls
_PAUSE_S = 0.02  # before each step of an episode, so that the others take theirs meanwhile

_Part = tuple[Sample, int]  # a sample and the number of the attempt at it


def check(context: CheckContext) -> Iterator[Evidence]:
    """Plays each episode alone and then all of them concurrently, turn by turn: observations and rewards must agree.

    The policies are the oracle and one that calls tools at random. One sample is played twice. While they are played
    once more, nothing of the task may keep the event loop.
    """
    bench = context.bench
    samples = context.some()[:_SAMPLES]
    parts = [(samples[0], 1), *((sample, 0) for sample in samples)]
    policies = {"the oracle": oracle(bench.task)}
    if calls := example_calls(bench.tools, context.oracle()):
        policies["random calls"] = random_calls(calls, _TURNS, constant(answer_text("42")), varied=True)
    for name, policy in policies.items():
        alone = [each for part in parts for each in _play(context, bench, policy, [part])]
        together = _play(context, bench, policy, parts)
        context.all_played += [*alone, *together]
        yield _compared(context, name, policy, parts, alone, together)

    def play(times: LoopTimes) -> None:
        manager = bench.manager(times.tool)
        for policy in policies.values():
            episodes = [bench.episode(policy, sample, manager=manager, around=times.env) for sample in samples]
            bench.run(gather_all(episodes), context.options.deadline_s, "playing at once")

    for blocker in blockers(play):
        yield wrong(blocker)


def _play(context: CheckContext, bench: TaskBench, policy: Policy, parts: Sequence[_Part]) -> list[Trajectory]:
    async def pausing(method: str, asked: Awaitable[Any]) -> Any:
        if method == "step":
            await asyncio.sleep(_PAUSE_S)
        return await asked

    def around(env: Env) -> Env:
        return EnvWrapper(env, pausing)

    episodes = [bench.episode(policy, sample, attempt=attempt, around=around) for sample, attempt in parts]
    return bench.run(gather_all(episodes), context.options.deadline_s, "playing at once")


def _compared(
    context: CheckContext,
    name: str,
    policy: Policy,
    parts: Sequence[_Part],
    alone: Sequence[Trajectory],
    together: Sequence[Trajectory],
) -> Evidence:
    pairs = list(zip(parts, alone, together, strict=True))
    other = [(part, a, b) for part, a, b in pairs if _seen(context, a) != _seen(context, b)]
    if not other:
        return seen(f"{name}: {len(parts)} episodes at once have the observations and rewards that each has alone")
    part, a, b = other[0]
    fresh = []
    for _ in range(2):
        with suppress(Exception), context.closed_bench() as bench:  # errors of closing are reported by `close`
            fresh += [_seen(context, each) for each in _play(context, bench, policy, [part])]
    if len(fresh) == 2 and fresh[0] != fresh[1]:
        return seen(f"{name}: not comparable, because two fresh tasks already answer or reward it differently")
    return wrong(
        f"{name}: {of(len(other), len(parts), 'episode')} differ between playing alone and at once. Sample "
        f"'{a.sample.id}' {_difference(a, b)}. Keep what belongs to an episode in its environment or in "
        "context.state, not in the task, a tool or a module."
    )


def _seen(context: CheckContext, played: Trajectory) -> tuple[object, ...]:
    """What has to be the same alone and at once."""
    return [turn.context_ids for turn in played.turns], played.stop, exact_rewards(context.bench, played)


def _difference(a: Trajectory, b: Trajectory) -> str:
    for number, (one, other) in enumerate(zip(a.turns, b.turns, strict=False)):
        if one.context_ids != other.context_ids:
            before = [each.turns[number - 1].results for each in (a, b)]
            alone, others = (results[0].content[:100] if results else "" for results in before)
            return f"sees {alone!r} alone and {others!r} with others, before turn {number + 1}"
    if len(a.turns) != len(b.turns):
        return f"has {len(a.turns)} turns alone and {len(b.turns)} with others"
    return f"gets {a.reward:g} alone and {b.reward:g} with others"
