"""Progress of long work: what engines and the runner call, and the state that every display shows.

The displays themselves, a live panel and plain lines, are in ``cli/ui``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isnan
from typing import Self

__all__ = ["Progress", "StageState", "count_text", "number_label", "seconds_text"]


class Progress:
    """One stage at a time: download, warm start, training, evaluation. It shows nothing; displays derive from it.

    Use it as a context manager, or call `close` in a ``finally``, so that a live display releases the terminal.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage: StageState | None = None

    def stage(self, name: str, total: int | None = None, unit: str = "") -> None:
        """End the current stage and begin a new one with ``total`` units (None: unknown), such as ``"step"``."""
        self._end()
        self._stage = StageState(name, total, unit, self._clock)
        self.on_stage(self._stage)

    def advance(self, count: int = 1, **numbers: float) -> None:
        """Record ``count`` more units as done. Numbers are shown by name until they are replaced or the stage ends.

        Names are as in metrics.jsonl; pass those with a slash as ``**{"eval/exact_match": 0.9}``.
        """
        if self._stage is None:
            return
        self._stage.done += count
        self._stage.numbers.update(numbers)
        self.on_advance(self._stage)

    def say(self, text: str) -> None:
        """Show one line that stays."""

    def close(self) -> None:
        """End the stage and the display; may be called again."""
        self._end()

    def on_stage(self, stage: StageState) -> None: ...

    def on_advance(self, stage: StageState) -> None: ...

    def on_end(self, stage: StageState, failed: bool) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self._end(failed=kind is not None)
        self.close()

    def _end(self, failed: bool = False) -> None:
        if self._stage is not None:
            stage, self._stage = self._stage, None
            stage.seconds_total = stage.seconds
            self.on_end(stage, failed)


@dataclass(slots=True)
class StageState:
    """The state of a stage; mutable, owned by its display."""

    name: str
    total: int | None
    unit: str
    clock: Callable[[], float]
    done: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    started: float = field(init=False)
    seconds_total: float | None = None  # set when it has ended

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def seconds(self) -> float:
        return self.clock() - self.started if self.seconds_total is None else self.seconds_total

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the mean rate so far; None if there is no estimate yet."""
        if not self.total or not 0 < self.done <= self.total:
            return None
        return self.seconds / self.done * (self.total - self.done)

    @property
    def count_text(self) -> str:
        """Such as ``step 12/60``, ``12 steps`` or nothing."""
        if self.total:
            return f"{self.unit} {self.done:,}/{self.total:,}".strip()
        if not self.done:
            return ""
        return count_text(self.done, self.unit) if self.unit else f"{self.done:,}"

    def number_texts(self) -> list[tuple[str, str]]:
        """A readable label and value for each number."""
        return [(number_label(name), number_text(value)) for name, value in self.numbers.items()]


def number_label(name: str) -> str:
    """A readable name of a metric: ``eval/exact_match/two_hop`` is ``held-out exact match, two hop``."""
    prefix, name = _prefix_label(name)
    text = ", ".join(part.replace("_", " ") for part in name.split("/"))
    if text.endswith("tokens s"):
        text = text.removesuffix(" s") + "/s"
    elif text.endswith(" s"):
        text = text.removesuffix(" s") + " seconds"
    return prefix + text


def _prefix_label(name: str) -> tuple[str, str]:
    """The label of a metric's prefix, and the rest of its name."""
    first, slash, rest = name.partition("/")
    if slash and first == "eval":
        return "held-out ", rest
    if slash and first == "sampled":
        return "sampled ", rest
    if first == "control" and "/" in rest:
        control, _, rest = rest.partition("/")
        return f"control ({control.replace('_', ' ')}) ", rest
    return "", name


def count_text(count: float, unit: str) -> str:
    """``1 step``, ``12 steps``."""
    return f"{int(count):,} {unit}{'' if count == 1 else 's'}"


def number_text(value: float) -> str:
    """About three digits, thousands as k and M."""
    if isnan(value):
        return "-"
    for limit, unit in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else 1e6):.1f}{unit}"
    if float(value).is_integer() and (isinstance(value, int) or abs(value) >= 10):
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}" if abs(value) >= 1e-3 or value == 0 else f"{value:.1e}"


def seconds_text(seconds: float) -> str:
    """``0.8 s``, ``48 s``, ``2:07 min``, ``1:02:07 h``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d} h"
