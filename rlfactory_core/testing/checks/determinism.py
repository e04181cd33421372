"""The same seed, the same samples; the same trajectory, the same reward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlfactory_core.testing.checks.elsewhere import digest
from rlfactory_core.testing.checks.result import Evidence, seen, wrong
from rlfactory_core.testing.checks.rewards import certain, of, opinions
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.testing.policies import constant, oracle
from rlfactory_core.tiny import answer_text
from rlfactory_core.types import Trajectory

_SCORED = 3  # times
_NEAR = 1e-9


def check(subject: Subject) -> Iterator[Evidence]:
    """Two tasks of one seed, here and in another process; episodes scored again, and played again.

    Rewards that a model decides are left out.
    """
    yield from _samples(subject)
    yield from _rewards(subject)


def _samples(subject: Subject) -> Iterator[Evidence]:
    again = subject.closed_bench()
    for split in ("train", "eval"):
        first = [digest(sample) for sample in subject.rows(split)]
        yield from _compared(subject, split, first, [digest(each) for each in again.rows(split)], "a second task")
        there = subject.elsewhere.digests.get(split)
        if there is None:
            yield seen(f"{split}: not compared with another process, which cannot make the task: see pickling")
        else:
            yield from _compared(subject, split, first, there, "the task in another process")


def _compared(
    subject: Subject, split: str, first: Sequence[str], second: Sequence[str], whose: str
) -> Iterator[Evidence]:
    if first == second:
        yield seen(f"{split}: {whose} of the same seed gives the same {len(first)} samples")
        return
    different = [index for index, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]]
    where = f"the first is number {different[0]}, '{subject.rows(split)[different[0]].id}'" if different else ""
    order = "in another order" if sorted(first) == sorted(second) else where or f"{len(second)} instead of {len(first)}"
    yield wrong(
        f"{split}: {whose} of the same seed gives other samples ({order}). Draw with random.Random(seed), and let no "
        "order of a set decide."
    )


def _rewards(subject: Subject) -> Iterator[Evidence]:
    opinionated = opinions(subject.bench)
    blind = subject.play(constant(answer_text("42")), subject.some())
    played = [*subject.oracle(), *blind]
    for _ in range(_SCORED - 1):
        scored = subject.bench.score(played, deadline_s=subject.deadline_s)
        changed = _changed(played, scored, opinionated)
        if changed:
            yield wrong(
                f"the same trajectory gets another reward when it is scored again: {changed}. A scorer must not draw "
                "random numbers, nor remember; one that asks a model says opinion = True."
            )
            break
    else:
        yield seen(f"{len(played)} trajectories scored {_SCORED} times get the same reward each time")
    again = [
        *subject.play(oracle(subject.bench.task), subject.some()),
        *subject.play(constant(answer_text("42")), subject.some()),
    ]
    changed = _changed(played, again, opinionated)
    if changed:
        yield wrong(
            f"the same policy gets another reward when it plays again with the same seed: {changed}. What the "
            "environment draws has to come from the sample or the run's seed."
        )
    else:
        yield seen(f"{len(played)} episodes played again get the same reward")
    if opinionated:
        yield seen(f"not compared, because a model decides: {', '.join(opinionated)}")


def _changed(first: Sequence[Trajectory], second: Sequence[Trajectory], but: Sequence[str]) -> str:
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if not a.masked and not b.masked]
    other = [(a, b) for a, b in pairs if _differ(certain(a, but), certain(b, but))]
    if not other:
        return ""
    a, b = other[0]
    return f"{of(len(other), len(pairs), 'episode')}; sample '{a.sample.id}' {a.reward:.6g}, then {b.reward:.6g}"


def _differ(a: Sequence[float], b: Sequence[float]) -> bool:
    return len(a) != len(b) or any(abs(x - y) > _NEAR for x, y in zip(a, b, strict=True))
