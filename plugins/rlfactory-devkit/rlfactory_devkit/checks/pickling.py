"""What a run sends between its processes can be pickled, and the task behaves the same in another process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import Evidence, seen, wrong
from rlfactory_devkit.rewards import exact_rewards, masking_fault, opinions


def check(context: CheckContext) -> Iterator[Evidence]:
    """A worker receives the configuration, the plugins' fingerprints and samples, and sends trajectories back.

    Tools, scorers and the task itself are not sent: each process makes its own from the plugin.
    """
    for split in ("train", "eval"):
        rows = context.rows(split)
        try:
            pickle.dumps(rows)
        except Exception as error:  # noqa: BLE001 - the boundary to what a task puts into its samples
            yield wrong(
                f"{split}: the samples do not pickle: {type(error).__name__}: {error}. Give them plain data, such as "
                "strings and numbers, and build other objects where they are used."
            )
        else:
            yield seen(f"{split}: {len(rows)} samples pickle")
    there = context.other_process
    if there.error:
        yield wrong(f"another process that loads the plugin cannot play the oracle: {there.error}")
        return
    yield _compared(context)


def _compared(context: CheckContext) -> Evidence:
    here = {each.sample.id: each for each in context.oracle()}
    opinionated = opinions(context.bench)
    for theirs in context.other_process.played:
        ours = here[theirs.sample.id]
        if theirs.masked and not ours.masked:
            return wrong(
                f"in another process the oracle's episode of '{theirs.sample.id}' is masked: {masking_fault(theirs)}"
            )
        if exact_rewards(theirs, opinionated) != exact_rewards(ours, opinionated):
            return wrong(
                f"in another process the oracle gets {theirs.reward:g} for sample '{theirs.sample.id}', and "
                f"{ours.reward:g} here. What a task needs has to come from its configuration, not from this process."
            )
    return seen(
        f"another process plays {len(context.other_process.played)} of the oracle's episodes to the same reward"
    )
