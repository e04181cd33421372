"""What the guard remembers of a run, and how it compares the last steps with the best ones before them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum, isfinite, isnan, nan, sqrt
from statistics import median

Row = Mapping[str, float | None]

STEPS = 5  # of a window
LONG, LONGEST = 2 * STEPS, 4 * STEPS  # steps that a slow change is looked for in
_SEEN = 128  # older rows, evenly chosen, that say what is usual
_DIFFERENCES = 100  # between neighbouring steps, from which a metric's noise is estimated
_QUARTILE = 0.614  # of |x - y|, times this, is the deviation of normal x and y; a few jumps do not change it
REWARD = "reward"
EQUAL = "equal_groups"
OF_UPDATES = ("entropy", "grad_norm", "kl", "loss", "mismatch_kl")  # 0 where nothing is trained, which says nothing
_CRITIC = ("critic_loss", "verl/critic/vf_loss")  # with a critic, equal rewards have a gradient


@dataclass(frozen=True, slots=True)
class Window:
    """Neighbouring steps. What too few of them have is NaN, with which every comparison is false."""

    rows: Sequence[Row] = ()

    def values(self, name: str) -> list[float]:
        return [value for row in self.rows if (value := row.get(name)) is not None and isfinite(value)]

    def mean(self, name: str) -> float:
        """NaN if half of the steps or more lack the metric."""
        values = self.values(name)
        return fsum(values) / len(values) if 2 * len(values) > len(self.rows) else nan

    def median(self, name: str) -> float:
        """NaN likewise."""
        values = self.values(name)
        return median(values) if 2 * len(values) > len(self.rows) else nan


class Past:
    """The steps so far.

    Args:
        followed: metrics of which the best window is remembered, besides the reward.
    """

    def __init__(self, followed: Collection[str] = ()) -> None:
        self.rows: list[Row] = []
        self.lowest = 0.0  # the lowest reward of a step, at most 0
        self.trained = False  # some step had a gradient
        self._followed = (REWARD, *followed)
        self._best: dict[str, Window] = {}
        self._references: deque[Window] = deque(maxlen=STEPS + 1)  # the best windows of the reward after these steps

    def add(self, row: Row) -> None:
        if row.get("trained_tokens") == 0:
            row = {name: value for name, value in row.items() if name not in OF_UPDATES}
        self.rows.append(row)
        self.lowest = min([self.lowest, *self.window(1).values(REWARD)])
        self.trained = self.trained or not nothing_trained(row)
        window = self.window(STEPS, STEPS)
        for name in self._followed:
            now, best = window.mean(name), self.best(name).mean(name)
            # A small gain may be noise, and would make a slow decline the new measure.
            better = isnan(best) or len(self.rows) <= 2 * STEPS or now > best + self.error(name, STEPS) / 2
            if better and not isnan(now):
                self._best[name] = window
        if REWARD in self._best:
            self._references.append(self._best[REWARD])

    def window(self, steps: int = STEPS, before: int = 0) -> Window:
        """The last ``steps``, without the ``before`` very last ones; fewer in a young run."""
        end = max(0, len(self.rows) - before)
        return Window(self.rows[max(0, end - steps) : end])

    def best(self, name: str = REWARD) -> Window:
        """The window before the last steps in which a metric was highest; empty in a young run."""
        return self._best.get(name, Window())

    def reference(self) -> Window:
        """The best window as it was five steps before, so that a slow change does not become its own measure."""
        return self._references[0] if self._references else Window()

    def older(self) -> Window:
        """The whole run without the last steps, thinned out."""
        rows = self.rows[:-STEPS]
        return Window(rows[:: 1 + len(rows) // (_SEEN + 1)])

    def usual(self, name: str) -> float:
        """The median of the older steps; NaN before there are as many as in a window."""
        return self.older().median(name) if len(self.rows) >= 2 * STEPS else nan

    def error(self, name: str, steps: int) -> float:
        """The standard error of a difference between a window of this length and the best one, by the steps' noise."""
        values = self.window(_DIFFERENCES + 1).values(name)
        found = sorted(abs(after - before) for before, after in pairwise(values))
        deviation = _QUARTILE * found[(3 * len(found) - 1) // 4] if found else 0.0
        return deviation * sqrt(1 / STEPS + 1 / steps)

    def has_risen(self) -> bool:
        """Whether the reward of the last steps is far above that of the window that they are compared with."""
        reference = self.reference()
        now, then = self.window().mean(REWARD), reference.mean(REWARD)
        share = 0.35 if len(reference.rows) == STEPS else 1.0  # a young run rises quickly anyway
        return now - then > max(3 * self.error(REWARD, STEPS), share * abs(then))


def nothing_trained(row: Row) -> bool:
    """Whether a step had no gradient because all attempts of each group got the same reward."""
    equal = row.get(EQUAL) or 0.0
    lost = row.get("masked_groups", row.get("masked"))
    if not equal or lost or any(name in row for name in _CRITIC):
        return False
    groups = row.get("groups")
    return (
        equal >= groups if groups else 0.0 in (row.get("trained_tokens"), row.get("reward_std"), row.get("grad_norm"))
    )
