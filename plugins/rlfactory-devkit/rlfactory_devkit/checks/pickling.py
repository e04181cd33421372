"""What a run sends between its processes can be pickled, and the task behaves the same in another process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

from rlfactory_core.types import Trajectory
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import Evidence, seen, wrong
from rlfactory_devkit.rewards import exact_rewards, masking_fault


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
    here = {each.sample.id: each for each in context.oracle()}
    played: list[Trajectory] = pickle.loads(there.played)  # noqa: S301 - of our own process
    for theirs in played:
        ours = here[theirs.sample.id]
        if theirs.masked and not ours.masked:
            yield wrong(
                f"in another process the oracle's episode of '{theirs.sample.id}' is masked: {masking_fault(theirs)}"
            )
            return
        if exact_rewards(context.bench, theirs) != exact_rewards(context.bench, ours):
            yield wrong(
                f"in another process the oracle gets {theirs.reward:g} for sample '{theirs.sample.id}', and "
                f"{ours.reward:g} here. What a task needs has to come from its configuration, not from this process."
            )
            return
    yield seen(f"another process plays {len(played)} of the oracle's episodes to the same reward")
