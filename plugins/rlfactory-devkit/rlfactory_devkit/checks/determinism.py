"""The same seed gives the same samples, and the same trajectory the same reward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlfactory_core.runner import constant, oracle
from rlfactory_core.tiny import answer_text
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.other_process import digest
from rlfactory_devkit.checks.result import Evidence, judged, seen, wrong
from rlfactory_devkit.rewards import changed_rewards, opinions

_SCORED = 3  # times


def check(context: CheckContext) -> Iterator[Evidence]:
    """Compares two tasks with one seed, here and in another process; then scores and plays episodes again.

    Rewards that a model decides are not compared.
    """
    again = context.closed_bench()
    for split in ("train", "eval"):
        first = [digest(sample) for sample in context.rows(split)]
        yield _compared(context, split, first, [digest(each) for each in again.rows(split)], "a second task")
        there = context.other_process.digests.get(split)
        if there is None:
            yield seen(f"{split}: not compared with another process, which cannot make the task: see check 'pickling'")
        else:
            yield _compared(context, split, first, there, "the task in another process")
    blind, bench = constant(answer_text("42")), context.bench
    played = [*context.oracle(), *context.play(blind, context.some())]
    scored = (bench.score(played, deadline_s=context.options.deadline_s) for _ in range(_SCORED - 1))
    changed = next(filter(None, (changed_rewards(bench, played, each) for each in scored)), "")
    yield judged(
        changed
        and f"the same trajectory gets another reward when it is scored again: {changed}. A scorer must not draw "
        "random numbers or keep state between calls; one that asks a model declares opinion = True.",
        f"{len(played)} trajectories scored {_SCORED} times get the same reward each time",
    )
    later = [each for policy in (oracle(bench.task), blind) for each in context.play(policy, context.some())]
    changed = changed_rewards(bench, played, later)
    yield judged(
        changed
        and f"the same policy gets another reward when it plays again with the same seed: {changed}. The environment "
        "has to derive its random numbers from the sample or the run's seed.",
        f"{len(played)} episodes played again get the same reward",
    )
    if judges := opinions(bench):
        yield seen(f"not compared, because a model decides: {', '.join(judges)}")


def _compared(context: CheckContext, split: str, first: Sequence[str], second: Sequence[str], whose: str) -> Evidence:
    if first == second:
        return seen(f"{split}: {whose} of the same seed gives the same {len(first)} samples")
    different = [index for index, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]]
    where = f"the first is number {different[0]}, '{context.rows(split)[different[0]].id}'" if different else ""
    order = "in another order" if sorted(first) == sorted(second) else where or f"{len(second)} instead of {len(first)}"
    return wrong(
        f"{split}: {whose} of the same seed gives other samples ({order}). Draw with random.Random(seed), and do not "
        "depend on the order of a set."
    )
