"""Shows progress as a live display: one line for each finished stage, and the running stage below them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rlfactory_core.cli.ui.console import make_console
from rlfactory_core.cli.ui.display import Display
from rlfactory_core.reporting.progress import StageState, count_text, seconds_text

_NAME_WIDTH = 16


class RichProgress(Display):
    """Two live lines: the bar with count and times, and the latest numbers. Tests give their own ``console``."""

    def __init__(
        self, stream: TextIO, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._console = console or make_console(stream)
        self._spinner = Spinner("dots", style="cyan")
        self._live: Live | None = None

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def on_stage(self, stage: StageState) -> None:
        if self._live is None:
            self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=5, transient=True)
            self._live.start()

    def on_end(self, stage: StageState, failed: bool) -> None:
        self._console.print(_finished(stage, failed, self._console.width))

    def close(self) -> None:
        super().close()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        stage = self._stage
        if stage is None:
            return Text("")
        row = Table.grid(padding=(0, 1), expand=False)
        row.add_column(width=1)
        row.add_column(min_width=_NAME_WIDTH, no_wrap=True)
        cells: list[RenderableType] = [self._spinner, Text(stage.name, style="bold")]
        if stage.total:
            row.add_column(width=max(10, min(32, self._console.width - 62)))
            cells.append(ProgressBar(total=stage.total, completed=stage.done, complete_style="cyan"))
        row.add_column(no_wrap=True)
        cells.append(_times(stage))
        row.add_row(*cells)
        if not stage.numbers:
            return row
        numbers = Text("   ").join(
            Text.assemble((f"{label} ", "dim"), (value, "bold")) for label, value in stage.number_texts()
        )
        line = Text("  ").append_text(numbers)
        # Not up to the edge, because the terminal's echo of Ctrl-C would wrap and displace the display.
        line.truncate(self._console.width - 4, overflow="ellipsis")
        return Group(row, line)


def _times(stage: StageState) -> Text:
    text = Text(stage.count_text)
    text.append(f"  {seconds_text(stage.seconds)}", style="dim")
    if stage.seconds_left is not None:
        text.append(f"  {seconds_text(stage.seconds_left)} left", style="dim")
    return text


def _finished(stage: StageState, failed: bool, width: int) -> Text:
    """One line with as many numbers as fit, beginning with held-out ones."""
    mark, style = ("✗", "red") if failed else ("✓", "green")
    line = Text.assemble((mark, style), " ", f"{stage.name:<{_NAME_WIDTH}}")
    line.append(f" {seconds_text(stage.seconds):>9}", style="dim")
    count = stage.count_text if failed or not stage.total else count_text(stage.done, stage.unit) if stage.unit else ""
    if count:
        line.append(f"  {count}", style="dim")
    for label, value in sorted(stage.number_texts(), key=lambda number: not number[0].startswith("held-out")):
        if line.cell_len + len(label) + len(value) + 3 > width:
            break
        line.append(f"  {label} ", style="dim").append(value)
    return line
