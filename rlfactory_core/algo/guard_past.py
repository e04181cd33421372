"""What the guard remembers of a run: its last steps, the best window before them, and what is usual in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import fsum, isfinite, sqrt
from statistics import median

Row = Mapping[str, float | None]

STEPS = 5  # of a window
LONG, LONGEST = 2 * STEPS, 4 * STEPS  # steps that a slow change is looked for in
_KEPT = 128  # older rows; more are thinned out
_DIFFERENCES = 100  # between neighbouring steps, from which a metric's noise is estimated
_QUARTILE = 0.614  # of |x - y|, times this, is the deviation of normal x and y; a few jumps do not change it
REWARD = "reward"
OF_UPDATES = ("entropy", "grad_norm", "kl", "loss", "mismatch_kl")  # 0 where nothing is trained, which says nothing
_CRITIC = ("critic_loss", "verl/critic/vf_loss")  # with a critic, equal rewards have a gradient


@dataclass(frozen=True, slots=True)
class Window:
    """Neighbouring steps, whose means are compared with those of other windows."""

    rows: tuple[Row, ...]

    def values(self, name: str) -> list[float]:
        return [value for row in self.rows if (value := row.get(name)) is not None and isfinite(value)]

    def mean(self, name: str) -> float | None:
        """None if more than half of the steps lack the metric."""
        values = self.values(name)
        return fsum(values) / len(values) if 2 * len(values) > len(self.rows) else None

    def median(self, name: str) -> float | None:
        values = self.values(name)
        return median(values) if 2 * len(values) > len(self.rows) else None


@dataclass(slots=True)
class Past:
    """The memory, of constant size.

    Args:
        followed: metrics of which the best window is remembered, besides the reward.
    """

    followed: Collection[str] = ()
    steps: int = 0
    lowest: float = 0.0  # the lowest reward of a step, at most 0
    trained: bool = False  # some step had a gradient
    _last: deque[Row] = field(default_factory=lambda: deque(maxlen=LONGEST + STEPS))
    _best: dict[str, Window] = field(default_factory=dict)
    _best_before: deque[Window] = field(default_factory=lambda: deque(maxlen=STEPS + 1))  # of the reward
    _older: list[Row] = field(default_factory=list)  # every `_apart`-th row, without the last `STEPS`
    _apart: int = 1
    _differences: dict[str, deque[float]] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        if row.get("trained_tokens") == 0:
            row = {name: value for name, value in row.items() if name not in OF_UPDATES}
        for name in (REWARD, *self.followed):
            before, now = self._last[-1].get(name) if self._last else None, row.get(name)
            if before is not None and now is not None and isfinite(before) and isfinite(now):
                self._differences.setdefault(name, deque(maxlen=_DIFFERENCES)).append(abs(now - before))
        self._last.append(row)
        self.steps += 1
        reward = row.get(REWARD)
        self.lowest = min(self.lowest, reward if reward is not None and isfinite(reward) else 0.0)
        self.trained = self.trained or not nothing_trained(row)
        if self.steps > STEPS:
            self._age(self._last[-STEPS - 1])

    def _age(self, row: Row) -> None:
        """A row has left the window of the last steps."""
        aged = self.steps - STEPS
        if aged % self._apart == 0:
            self._older.append(row)
        if len(self._older) > _KEPT:
            self._older, self._apart = self._older[1::2], 2 * self._apart
        window = self.window(STEPS, STEPS)
        for name in (REWARD, *self.followed):
            now = window.mean(name)
            best = self._best[name].mean(name) if name in self._best and aged > STEPS else None
            # A small gain may be noise, and would make a slow decline the new measure.
            if now is not None and (best is None or now > best + self.error(name, STEPS) / 2):
                self._best[name] = window
        if REWARD in self._best:
            self._best_before.append(self._best[REWARD])

    def window(self, steps: int = STEPS, before: int = 0) -> Window:
        """The last ``steps``, without the ``before`` very last ones; fewer in a young run."""
        rows = list(self._last)
        end = len(rows) - before
        return Window(tuple(rows[max(0, end - steps) : end]))

    def best(self, name: str = REWARD) -> Window | None:
        """The window before the last steps in which a metric was highest; None in a young run."""
        return self._best.get(name)

    def reference(self) -> Window | None:
        """The best window as it was five steps before, so that a slow change does not become its own measure."""
        return self._best_before[0] if self._best_before else None

    def usual(self, name: str) -> float | None:
        """The median over the whole run without the last steps; None before there are as many others."""
        return Window(tuple(self._older)).median(name) if len(self._older) >= STEPS else None

    def highest(self, name: str) -> float:
        """The highest value of the whole run without the last steps; 0 if there is none."""
        return max(Window(tuple(self._older)).values(name), default=0.0)

    def error(self, name: str, steps: int) -> float:
        """The standard error of a difference between a window of this length and the best one, by the steps' noise."""
        found = sorted(self._differences.get(name, ()))
        deviation = _QUARTILE * found[(3 * len(found) - 1) // 4] if found else 0.0
        return deviation * sqrt(1 / STEPS + 1 / steps)


def nothing_trained(row: Row) -> bool:
    """Whether a step had no gradient because all attempts of each group got the same reward."""
    equal = row.get("equal_groups") or 0.0
    lost = row.get("masked_groups", row.get("masked"))
    if not equal or lost or any(name in row for name in _CRITIC):
        return False
    groups = row.get("groups")
    return (
        equal >= groups if groups else 0.0 in (row.get("trained_tokens"), row.get("reward_std"), row.get("grad_norm"))
    )
