"""Which groups and steps have lost too many trajectories to faults to be trained on, and why.

An infra or verifier fault masks its trajectory: it is left out of the update. The others are then a selection. If a
tool is down, they are the attempts that did not call it, and the policy would learn not to call. So masking is bounded:
what has lost more than `MOST_MASKED` of its trajectories, or of those that called one of the tools, is not trained on.
The second bound is for a policy that seldom calls. An engine plays such a step again, after a pause, at most
``train.max_skipped`` times.

A failure of a tool's own, such as an exception, masks nothing, because a policy can provoke it. But a tool is down as
well if it fails all callers for longer than its answers so far make likely.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields

from rlfactory_core.types import PROMPT, Fault, FaultKind, Group, ToolResult, Trajectory

MOST_MASKED = 1 / 3
"""The largest share of masked trajectories in a group, or in a step, that is trained on."""
FEW, PLAYS = 3, 10
"""Fewer lost callers of a tool, over the last plays of steps, say little of it. Their groups are not trained on."""
FAILED, UNLIKELY = 8, 1e-5
"""Treat a tool as down only after `FAILED` failing callers in a row, and only if its earlier failure rate makes such a
series unlikely, with a probability below `UNLIKELY`."""
PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0
"""Before a step is played again. Each pause is twice as long as the one before."""


def is_trained(group: Group) -> bool:
    """Whether enough trajectories of a group are left, and of those that called each tool."""
    found = Counts.of(group.trajectories)
    return not any(too_many(masked, found.total[name]) for name, masked in found.masked.items())


@dataclass(frozen=True, slots=True)
class Counts:
    """Trajectories by their fate: of all under the name "", else of those that called a tool, by its `_label`."""

    total: Counter[str] = field(default_factory=Counter)
    masked: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)  # by the tool, which may have refused
    failed: Counter[str] = field(default_factory=Counter)  # by the tool itself, and not answered

    @classmethod
    def of(cls, trajectories: Iterable[Trajectory]) -> Counts:
        found = cls()
        for each in trajectories:
            results = [result for turn in each.turns for result in turn.results]
            called = {call.name for turn in each.turns if turn.results for call in turn.message.tool_calls}
            names = ("", *(_label(name, each) for name in called))
            found.total.update(names)
            found.masked.update(names if each.masked else ())
            answered = {_label(result.name, each) for result in results if _is_answer(result)}
            failed = {_label(result.name, each) for result in results if _is_failure(result)}
            found.answered.update(answered)
            found.failed.update(failed - answered)
        return found

    def __add__(self, other: Counts) -> Counts:
        sums = (getattr(self, each.name) + getattr(other, each.name) for each in fields(Counts))
        return Counts(*sums)


class LostAttempts:
    """The trajectories that the last plays of steps have lost.

    A policy that seldom calls shows only over several plays that its tool is down: if each was judged alone, the one in
    which the fewest call would be trained on.
    """

    def __init__(self) -> None:
        self._plays: deque[Counts] = deque(maxlen=PLAYS)
        self.answered, self.failed = Counter[str](), Counter[str]()
        """The callers of each tool up to the last play in which it answered one; for a checkpoint."""
        self._failed_since: Counter[str] = Counter()

    def too_many(self, play: Counts) -> bool:
        """Record an attempt at a step. True if the step must not be trained on.

        Then too many of its attempts, or of a tool's callers, are lost, and no call of that tool was answered since.
        """
        self._plays.append(play)
        self._failed_since += play.failed
        for name in play.answered:
            self.failed[name] += self._failed_since.pop(name, 0)
        self.answered += play.answered
        return too_many(play.masked[""], play.total[""]) or bool(self.tools() or self.failing())

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

    def failing(self) -> dict[str, int]:
        """The callers that each tool has failed in a row, if it has answered so many before that it must be down."""

        def share(name: str) -> float:
            return (self.failed[name] + 1) / (self.answered[name] + self.failed[name] + 1)

        return {n: many for n, many in self._failed_since.items() if many >= FAILED and share(n) ** many < UNLIKELY}

    def text(self, trajectories: Iterable[Trajectory]) -> str:
        """`masking_text` of the last play, with the tools whose callers are lost."""
        tools = [
            f"of the last {found.total[name]:,} that called {name}, {found.masked[name]:,} were lost"
            for name, found in self.tools().items()
        ]
        trajectories = list(trajectories)
        results = ((each, result) for each in trajectories for turn in each.turns for result in turn.results)
        reasons = {_label(result.name, each): result.reason for each, result in results if _is_failure(result)}
        tools += [
            f"{name} failed for each of the last {number:,} that called it ({reasons.get(name, 'as before'):.200})"
            for name, number in self.failing().items()
        ]
        return "; ".join(filter(None, (masking_text(trajectories), *tools)))


def too_many(masked: float, total: float) -> bool:
    """Whether so many of the trajectories may not be masked."""
    return masked > total * MOST_MASKED


def _is_answer(result: ToolResult) -> bool:
    """Whether the tool answered now, also by a refusal."""
    return not result.cached and (result.fault is None or (result.fault is FaultKind.TOOL and not result.reason))


def _is_failure(result: ToolResult) -> bool:
    """Whether the tool itself failed; a refusal has no reason beside its text."""
    return result.fault is FaultKind.TOOL and bool(result.reason)


def _label(name: str, trajectory: Trajectory) -> str:
    """A tool's name; of one of several tasks with the task, because tools of two tasks may have one name."""
    task = trajectory.sample.task
    return f"{name} of {task}" if task else name


def masked_by(trajectories: Iterable[Trajectory]) -> Counter[str]:
    """The number of masked trajectories for each source, such as a tool; that of the first masking fault counts."""
    return Counter(_masking(each).source for each in trajectories if each.masked)


def in_vain(trajectories: Iterable[Trajectory]) -> str:
    """Why to play them again would change nothing: their rewards give no score, or their prompts leave no room.

    Empty if too few are lost so.
    """
    trajectories = list(trajectories)
    faults = [fault for each in trajectories for fault in each.faults if fault.masks]
    found = [fault for fault in faults if fault.code == "unusable" or fault.source == PROMPT]
    if not too_many(len(found), len(trajectories)):
        return ""
    what = "The prompts are too long" if found[0].source == PROMPT else f"The reward {found[0].source} gives no score"
    return f"{len(found):,} of {len(trajectories):,} attempts are lost, and will be again. {what}: {found[0].message}"


def masking_text(trajectories: Iterable[Trajectory]) -> str:
    """Such as ``9 of 64 trajectories were masked: search 7 (no result within 30 s), judge 2 (…)``, or nothing."""
    trajectories = list(trajectories)
    masked = [(_masking(each), each) for each in trajectories if each.masked]
    faults = [(_label(fault.source, each), fault.message) for fault, each in masked]
    if not faults:
        return ""
    examples = dict(reversed(faults))
    sources = Counter(source for source, _ in faults).most_common()
    parts = ", ".join(f"{source} {count} ({examples[source]:.200})" for source, count in sources)
    return f"{len(faults):,} of {len(trajectories):,} trajectories were masked: {parts}"


def _masking(trajectory: Trajectory) -> Fault:
    """The first fault that masks it."""
    return next(fault for fault in trajectory.faults if fault.masks)
