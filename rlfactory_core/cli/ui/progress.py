"""Shows progress: as a live panel on a terminal, as plain lines in files, pipes and CI."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO

from rlfactory_core.cli.ui.display import Display
from rlfactory_core.reporting.progress import Progress, StageState, count_text, seconds_text
from rlfactory_core.utils.display import printable

__all__ = ["make_progress"]

EVERY_S, QUIET_S = 3.0, 30.0


class PlainProgress(Display):
    """Writes a line when a stage starts and ends, and after every tenth of it, but at most one in `EVERY_S`.

    If a tenth takes long or the total is unknown, a line is also written after `QUIET_S` without one.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._stream = stream
        self._last_s = 0.0  # when the last line was written, on the clock
        self._last_tenth = 0

    def say(self, text: str) -> None:
        self._line(text)

    def on_stage(self, stage: StageState) -> None:
        self._last_tenth = 0
        self._line(f"{stage.name}: {count_text(stage.total, stage.unit)}" if stage.total and stage.unit else stage.name)

    def on_advance(self, stage: StageState) -> None:
        quiet_for = self._clock() - self._last_s
        tenth = 10 * stage.done // stage.total if stage.total else 0
        if stage.done == stage.total or quiet_for < EVERY_S:
            return
        if tenth > self._last_tenth or quiet_for >= QUIET_S:
            self._last_tenth = tenth
            left = stage.seconds_left
            times = [seconds_text(stage.seconds), *([f"about {seconds_text(left)} left"] if left is not None else [])]
            self._line("  " + ", ".join([stage.count_text or "…", *times, *_numbers(stage)]))

    def on_end(self, stage: StageState, failed: bool) -> None:
        done = "stopped after" if failed else "done in"
        counted = [stage.count_text] if stage.count_text and (failed or stage.done != stage.total) else []
        self._line("  " + ", ".join([f"{done} {seconds_text(stage.seconds)}", *counted, *_numbers(stage)]))

    def _line(self, text: str) -> None:
        self._last_s = self._clock()
        self._stream.write(printable(text) + "\n")
        self._stream.flush()


def _numbers(stage: StageState) -> list[str]:
    return [f"{label} {value}" for label, value in stage.number_texts()]


def make_progress(stream: TextIO) -> Progress:
    """A live panel if ``stream`` is a terminal that can redraw, else plain lines."""
    if stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
        from rlfactory_core.cli.ui.rich_progress import RichProgress

        return RichProgress(stream)
    return PlainProgress(stream)
