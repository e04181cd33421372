"""Which groups and steps have lost too many trajectories to be trained on, and why they were lost.

An infra or verifier fault masks its trajectory: it is left out of the update. The others are then a selection. If a
tool is down, they are the attempts that did not call it, and the policy would learn not to call. So masking is bounded:
what has lost more than `MOST_MASKED` of its trajectories is not trained on. An engine plays such a step again, after a
pause, at most ``train.max_skipped`` times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rlfactory_core.types import Fault, Group, Trajectory

MOST_MASKED = 1 / 3
"""The largest share of masked trajectories in a group, or in a step, that is trained on."""
PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
"""Before a step is played again. Each pause is twice as long as the one before."""


def is_trained(group: Group) -> bool:
    """Whether enough trajectories of a group are left."""
    masked = sum(trajectory.masked for trajectory in group.trajectories)
    return not too_many(masked, len(group.trajectories))


def too_many(masked: int, total: int) -> bool:
    """Whether so many of the trajectories may not be masked."""
    return masked > total * MOST_MASKED


def masked_by(trajectories: Iterable[Trajectory]) -> Counter[str]:
    """The number of masked trajectories for each source, such as a tool; that of the first masking fault counts."""
    return Counter(fault.source for fault in _masking_faults(trajectories))


def masking_text(trajectories: Iterable[Trajectory]) -> str:
    """Such as ``9 of 64 trajectories were masked: search 7 (no result within 30 s), judge 2 (…)``, or nothing."""
    trajectories = list(trajectories)
    faults = _masking_faults(trajectories)
    if not faults:
        return ""
    examples = {fault.source: fault.message for fault in reversed(faults)}
    sources = Counter(fault.source for fault in faults).most_common()
    parts = ", ".join(f"{source} {count} ({examples[source]:.200})" for source, count in sources)
    return f"{len(faults):,} of {len(trajectories):,} trajectories were masked: {parts}"


def _masking_faults(trajectories: Iterable[Trajectory]) -> list[Fault]:
    """The first masking fault of each masked trajectory."""
    return [next(fault for fault in each.faults if fault.masks) for each in trajectories if each.masked]
