"""What a run sends between its processes can be pickled, and the task behaves the same in another process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

from rlfactory_core.types import Trajectory
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import Evidence, judged, seen, wrong
from rlfactory_devkit.rewards import changed_rewards, masking_fault


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
    played: list[Trajectory] = pickle.loads(there.played)  # noqa: S301 - of our own process
    here = {each.sample.id: each for each in context.oracle()}
    changed = changed_rewards(context.bench, [here[each.sample.id] for each in played], played)
    masked = [each for each in played if each.masked and not here[each.sample.id].masked]
    if masked:
        changed = f"sample '{masked[0].sample.id}' is masked by {masking_fault(masked[0])}"
    yield judged(
        changed
        and f"another process plays the oracle to another reward: {changed}. What a task needs has to come from its "
        "configuration, not from this process.",
        f"another process plays {len(played)} of the oracle's episodes to the same reward",
    )
