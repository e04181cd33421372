"""What crosses between a run's processes can be pickled, and the task is the same on the other side."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

from rlfactory_core.testing.checks.result import Evidence, seen, wrong
from rlfactory_core.testing.checks.rewards import certain, opinions, spoilt
from rlfactory_core.testing.checks.subject import Subject


def check(subject: Subject) -> Iterator[Evidence]:
    """To a worker go the configuration, the plugins' fingerprints and samples; trajectories come back.

    Tools, scorers and the task itself do not cross: each process makes its own, from the plugin.
    """
    for split in ("train", "eval"):
        rows = subject.rows(split)
        try:
            pickle.dumps(rows)
        except Exception as error:  # noqa: BLE001 - the boundary to what a task puts into its samples
            yield wrong(
                f"{split}: the samples do not pickle: {type(error).__name__}: {error}. Give them plain data, such as "
                "strings and numbers, and build what else a tool needs where it is used."
            )
        else:
            yield seen(f"{split}: {len(rows)} samples pickle")
    there = subject.elsewhere
    if there.error:
        yield wrong(f"another process that loads the plugin cannot play the oracle: {there.error}")
        return
    yield _compared(subject)


def _compared(subject: Subject) -> Evidence:
    here = {each.sample.id: each for each in subject.oracle()}
    opinionated = opinions(subject.bench)
    for theirs in subject.elsewhere.played:
        ours = here[theirs.sample.id]
        if theirs.masked and not ours.masked:
            return wrong(f"in another process the oracle's episode of '{theirs.sample.id}' is spoilt: {spoilt(theirs)}")
        if certain(theirs, opinionated) != certain(ours, opinionated):
            return wrong(
                f"in another process the oracle gets {theirs.reward:g} for sample '{theirs.sample.id}', and "
                f"{ours.reward:g} here. What a task needs has to come from its configuration, not from this process."
            )
    return seen(f"another process plays {len(subject.elsewhere.played)} of the oracle's episodes to the same reward")
