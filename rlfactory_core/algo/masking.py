"""Which groups and steps have lost too many trajectories to be trained on, and why they were lost.

An infra or verifier fault masks its trajectory: it is left out of the update. The others are then a selection. If a
tool is down, they are the attempts that did not call it, and the policy would learn not to call. So masking is bounded:
what has lost more than `MOST_MASKED` of its trajectories, or of those that called one of the tools, is not trained on.
The second bound is for a policy that seldom calls. An engine plays such a step again, after a pause, at most
``train.max_skipped`` times.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rlfactory_core.types import Fault, Group, Trajectory

MOST_MASKED = 1 / 3
"""The largest share of masked trajectories in a group, or in a step, that is trained on."""
FEW, PLAYS = 3, 10
"""Fewer lost callers of a tool, over the last plays of steps, say little of it. Their groups are not trained on."""
PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
"""Before a step is played again. Each pause is twice as long as the one before."""


def is_trained(group: Group) -> bool:
    """Whether enough trajectories of a group are left, and of those that called each tool."""
    found = Counts.of(group.trajectories)
    return not any(too_many(masked, found.total[name]) for name, masked in found.masked.items())


@dataclass(frozen=True, slots=True)
class Counts:
    """Trajectories, and those of them that are masked: of all under the name "", else of those that called a tool."""

    total: Counter[str] = field(default_factory=Counter)
    masked: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, trajectories: Iterable[Trajectory]) -> Counts:
        found = cls()
        for each in trajectories:
            called = {call.name for turn in each.turns if turn.results for call in turn.message.tool_calls}
            found.total.update(("", *called))
            found.masked.update(("", *called) if each.masked else ())
        return found

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.total + other.total, self.masked + other.masked)


class Losses:
    """What the last plays of steps have lost.

    A policy that seldom calls shows only over several plays that its tool is down: if each was judged alone, the one in
    which the fewest call would be trained on.
    """

    def __init__(self) -> None:
        self._plays: deque[Counts] = deque(maxlen=PLAYS)

    def too_many(self, play: Counts) -> bool:
        """Count a play; whether it is not trained on: it has lost too many, or a tool has, and none answers since."""
        self._plays.append(play)
        return too_many(play.masked[""], play.total[""]) or bool(self.tools())

    def tools(self) -> dict[str, Counts]:
        """The plays, added up, since each tool last answered enough of its callers, if they lost `FEW` or more."""
        names = dict.fromkeys(name for play in self._plays for name in play.masked if name)
        since = {name: sum(self._since(name), Counts()) for name in names}
        return {name: found for name, found in since.items() if found.masked[name] >= FEW}

    def _since(self, name: str) -> Iterator[Counts]:
        for play in reversed(self._plays):
            if play.total[name] and not too_many(play.masked[name], play.total[name]):
                break
            yield play

    def text(self, trajectories: Iterable[Trajectory]) -> str:
        """`masking_text` of the last play, with the tools whose callers are lost."""
        tools = [
            f"of the last {found.total[name]:,} that called {name}, {found.masked[name]:,} were lost"
            for name, found in self.tools().items()
        ]
        return "; ".join(filter(None, (masking_text(trajectories), *tools)))


def too_many(masked: float, total: float) -> bool:
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
