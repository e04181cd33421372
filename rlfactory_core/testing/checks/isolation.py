"""Episodes that run at once do not see each other."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress

from rlfactory_core.rollout import gather_all
from rlfactory_core.testing.bench import TaskBench
from rlfactory_core.testing.checks.result import Evidence, seen, wrong
from rlfactory_core.testing.checks.rewards import certain, of, opinions
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.testing.examples import example_calls
from rlfactory_core.testing.lockstep import Lockstep
from rlfactory_core.testing.policies import Policy, oracle
from rlfactory_core.tiny import answer_text, call
from rlfactory_core.types import Message, Sample, ToolCall, ToolSpec, Trajectory

_SAMPLES = 3
_TURNS = 3  # of calls
_WORDS = 2  # of the prompt, as an argument

_Part = tuple[Sample, int]  # a sample and the number of the attempt at it


def check(subject: Subject) -> Iterator[Evidence]:
    """Each episode alone, then all at once, turn by turn: the same observations and rewards.

    Played are the oracle and a wanderer, who calls tools at random; of different samples, and of one sample twice.
    """
    bench = subject.bench
    samples = subject.some()[:_SAMPLES]
    parts = [(samples[0], 1), *((sample, 0) for sample in samples)]
    calls = example_calls(bench.tools, subject.oracle())
    policies = {"the oracle": oracle(bench.task)}
    if calls:
        policies["a wanderer"] = wanderer(calls)
    for name, policy in policies.items():
        alone = [each for part in parts for each in _play(subject, bench, policy, [part])]
        together = _play(subject, bench, policy, parts)
        yield _compared(subject, name, policy, parts, alone, together)


def wanderer(calls: Sequence[ToolCall]) -> Policy:
    """Makes calls for some turns, with their own arguments or with words of the prompt, then answers."""

    def policy(
        sample: Sample, messages: Sequence[Message], tools: Sequence[ToolSpec], rng: random.Random
    ) -> Message | str:
        if sum(message.role == "assistant" for message in messages) >= _TURNS:
            return answer_text("42")
        chosen = rng.choice(calls)
        words = [word for message in messages if message.role == "user" for word in message.content.split()]
        if words and rng.random() < 0.5:
            start = rng.randrange(len(words))
            said = " ".join(words[start : start + _WORDS])
            changed = {k: said if isinstance(v, str) else v for k, v in (chosen.arguments or {}).items()}
            chosen = call(chosen.name, **changed)
        return Message("assistant", "", tool_calls=(chosen,))

    return policy


def _play(subject: Subject, bench: TaskBench, policy: Policy, parts: Sequence[_Part]) -> list[Trajectory]:
    async def play() -> list[Trajectory]:
        around = Lockstep(len(parts)).around
        return await gather_all(
            bench.episode(policy, sample, attempt=attempt, around=around) for sample, attempt in parts
        )

    played = bench.run(play(), subject.deadline_s, "playing at once")
    subject.seen += played
    return played


def _compared(
    subject: Subject,
    name: str,
    policy: Policy,
    parts: Sequence[_Part],
    alone: Sequence[Trajectory],
    together: Sequence[Trajectory],
) -> Evidence:
    judges = opinions(subject.bench)
    other = [i for i, pair in enumerate(zip(alone, together, strict=True)) if not _alike(*pair, judges)]
    if not other:
        return seen(f"{name}: {len(parts)} episodes at once see and get what each sees and gets alone")
    first = other[0]
    if _changes_by_itself(subject, policy, parts[first]):
        return seen(f"{name}: cannot be told, because two fresh tasks answer or reward it differently by themselves")
    return wrong(
        f"{name}: {of(len(other), len(parts), 'episode')} go otherwise at once than alone. Sample "
        f"'{alone[first].sample.id}' {_difference(alone[first], together[first])}. Keep what belongs to an episode in "
        "its environment or in context.state, not in the task, a tool or a module."
    )


def _alike(a: Trajectory, b: Trajectory, judges: Sequence[str]) -> bool:
    return _observed(a) == _observed(b) and a.stop is b.stop and certain(a, judges) == certain(b, judges)


def _observed(trajectory: Trajectory) -> list[tuple[int, ...]]:
    return [turn.context_ids for turn in trajectory.turns]


def _changes_by_itself(subject: Subject, policy: Policy, part: _Part) -> bool:
    """Whether an episode is different already as the first one of two tasks."""
    first = []
    for _ in range(2):
        with suppress(Exception), subject.closed_bench() as bench:  # what closing does is another check's affair
            first += _play(subject, bench, policy, [part])
    return len(first) == 2 and not _alike(first[0], first[1], opinions(subject.bench))


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
