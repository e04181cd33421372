"""The trajectories of a run get the rewards that they were given: the regression test of a reward."""

from __future__ import annotations

from collections.abc import Iterator

from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import DoesNotApply, Evidence, seen, wrong
from rlfactory_devkit.rewards import opinions

_SHOWN = 3


def check(context: CheckContext) -> Iterator[Evidence]:
    """Scores the stored trajectories of the run that is named; scores that a model decides are not compared."""
    run = context.options.run
    if not run:
        raise DoesNotApply("no run is named: --run RUN")
    comparison, judges = context.bench.rescore(run), opinions(context.bench)
    changed = comparison.most_changed
    if judges:
        changed = [each for each in changed if any(name.split(".")[0] not in judges for name in each.scores)]
        yield seen(f"not compared, because a model decides: {', '.join(judges)}")
    if not changed:
        yield seen(comparison.text if not judges else f"{len(comparison.attempts)} attempts got the same other scores")
    else:
        yield wrong(f"{comparison.text} See all of it: rlfactory rescore {run}")
        for each in changed[:_SHOWN]:
            yield wrong(f"{each.where}: {each.text}")
    for note in comparison.notes:
        yield seen(note)
