"""Concurrent episodes do not affect each other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress

from rlfactory_core.protocols import EnvStart, EnvStep
from rlfactory_core.runner import Policy, TaskBench, oracle
from rlfactory_core.tiny import answer_text, call
from rlfactory_core.types import Message, Sample, ToolCall, Trajectory
from rlfactory_core.utils.aio import gather_all
from rlfactory_devkit.checks.blocking import Loop, blockers
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import Evidence, seen, wrong
from rlfactory_devkit.examples import example_calls
from rlfactory_devkit.rewards import exact_rewards, of, opinions
from rlfactory_devkit.wrappers import EnvWrapper

_SAMPLES = 3
_TURNS = 3  # of calls
_WORDS = 2  # of the prompt, as an argument
_PATIENCE_S = 5.0  # for episodes that have not begun, or take a step

_Part = tuple[Sample, int]  # a sample and the number of the attempt at it


def check(context: CheckContext) -> Iterator[Evidence]:
    """Plays each episode alone and then all of them concurrently, turn by turn: observations and rewards must agree.

    The policies are the oracle and one that calls tools at random. One sample is played twice. While they are played
    once more, nothing of the task may keep the event loop.
    """
    bench = context.bench
    samples = context.some()[:_SAMPLES]
    parts = [(samples[0], 1), *((sample, 0) for sample in samples)]
    calls = example_calls(bench.tools, context.oracle())
    policies = {"the oracle": oracle(bench.task)}
    if calls:
        policies["random calls"] = random_calls(calls)
    for name, policy in policies.items():
        alone = [each for part in parts for each in _play(context, bench, policy, [part])]
        barrier = _Barrier(len(parts))
        together = _play(context, bench, policy, parts, barrier)
        if barrier.given_up:
            yield seen(f"{name}: not all turns were interleaved, because an episode kept the others waiting")
        yield _compared(context, name, policy, parts, alone, together)

    def play(loop: Loop) -> None:
        manager = bench.manager(loop.tool)
        for policy in policies.values():
            episodes = [bench.episode(policy, sample, manager=manager, around=loop.around) for sample in samples]
            bench.run(gather_all(episodes), context.options.deadline_s, "playing at once")

    for blocker in blockers(play):
        yield wrong(blocker)


def random_calls(calls: Sequence[ToolCall]) -> Policy:
    """Makes random calls for some turns, with their own arguments or with words of the prompt, then answers."""

    def policy(_: Sample, messages: Sequence[Message], tools: object, rng: random.Random) -> Message | str:
        if sum(message.role == "assistant" for message in messages) >= _TURNS:
            return answer_text("42")
        chosen = rng.choice(calls)
        words = [word for message in messages if message.role == "user" for word in message.content.split()]
        if words and rng.random() < 0.5:
            start = rng.randrange(len(words))
            phrase = " ".join(words[start : start + _WORDS])
            changed = {k: phrase if isinstance(v, str) else v for k, v in (chosen.arguments or {}).items()}
            chosen = call(chosen.name, **changed)
        return Message("assistant", "", tool_calls=(chosen,))

    return policy


def _play(
    context: CheckContext, bench: TaskBench, policy: Policy, parts: Sequence[_Part], barrier: _Barrier | None = None
) -> list[Trajectory]:
    barrier = barrier or _Barrier(len(parts))

    async def play() -> list[Trajectory]:
        return await gather_all(
            bench.episode(policy, sample, attempt=attempt, around=_LockstepEnv(barrier).around)
            for sample, attempt in parts
        )

    played = bench.run(play(), context.options.deadline_s, "playing at once")
    context.all_played += played
    return played


def _compared(
    context: CheckContext,
    name: str,
    policy: Policy,
    parts: Sequence[_Part],
    alone: Sequence[Trajectory],
    together: Sequence[Trajectory],
) -> Evidence:
    judges = opinions(context.bench)
    other = [i for i, pair in enumerate(zip(alone, together, strict=True)) if not _alike(*pair, judges)]
    if not other:
        return seen(f"{name}: {len(parts)} episodes at once have the observations and rewards that each has alone")
    first = other[0]
    if _changes_by_itself(context, policy, parts[first]):
        return seen(f"{name}: not comparable, because two fresh tasks already answer or reward it differently")
    return wrong(
        f"{name}: {of(len(other), len(parts), 'episode')} differ between playing alone and at once. Sample "
        f"'{alone[first].sample.id}' {_difference(alone[first], together[first])}. Keep what belongs to an episode in "
        "its environment or in context.state, not in the task, a tool or a module."
    )


def _alike(a: Trajectory, b: Trajectory, judges: Sequence[str]) -> bool:
    return _observed(a) == _observed(b) and a.stop is b.stop and exact_rewards(a, judges) == exact_rewards(b, judges)


def _observed(trajectory: Trajectory) -> list[tuple[int, ...]]:
    return [turn.context_ids for turn in trajectory.turns]


def _changes_by_itself(context: CheckContext, policy: Policy, part: _Part) -> bool:
    """Whether an episode already differs between two fresh tasks."""
    first = []
    for _ in range(2):
        with suppress(Exception), context.closed_bench() as bench:  # errors of closing are reported by `close`
            first += _play(context, bench, policy, [part])
    return len(first) == 2 and not _alike(first[0], first[1], opinions(context.bench))


def _difference(a: Trajectory, b: Trajectory) -> str:
    for number, (one, other) in enumerate(zip(a.turns, b.turns, strict=False)):
        if one.context_ids != other.context_ids:
            results = [
                turn.results[0].content if turn.results else "" for turn in (a.turns[number - 1], b.turns[number - 1])
            ]
            return f"sees {results[0][:100]!r} alone and {results[1][:100]!r} with others, before turn {number + 1}"
    if len(a.turns) != len(b.turns):
        return f"has {len(a.turns)} turns alone and {len(b.turns)} with others"
    return f"gets {a.reward:g} alone and {b.reward:g} with others"


class _Barrier:
    """Episodes wait here for each other; one that has ended leaves.

    They wait no longer once one of them did not come: it may wait itself for a session that another one has.
    """

    def __init__(self, episodes: int) -> None:
        self._episodes, self._waiting = episodes, 0
        self._round = asyncio.Event()
        self.given_up = False

    async def wait(self) -> None:
        """Wait until all remaining episodes are waiting."""
        if self.given_up:
            return
        self._waiting += 1
        mine = self._round
        self._go()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await mine.wait()
        except TimeoutError:
            self.given_up = True
            mine.set()

    def leave(self) -> None:
        self._episodes -= 1
        self._go()

    def _go(self) -> None:
        if self._waiting >= self._episodes:
            self._waiting = 0
            self._round.set()
            self._round = asyncio.Event()


class _LockstepEnv(EnvWrapper):
    """Waits at the barrier after the start and before each step, so that the turns of all episodes interleave."""

    def __init__(self, barrier: _Barrier) -> None:
        self._barrier = barrier

    async def start(self) -> EnvStart:
        start = await super().start()
        await self._barrier.wait()
        return start

    async def step(self, message: Message) -> EnvStep:
        await self._barrier.wait()
        return await super().step(message)

    async def close(self) -> None:
        self._barrier.leave()
        await super().close()
