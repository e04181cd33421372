"""The end of a run in plain words: what it learned, an example, where everything is, what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import number_label, number_text
from rlfactory_core.reporting.run_data import (
    EvalRow,
    Pair,
    RunData,
    control_results,
    eval_extras,
    eval_rows,
    headline,
)
from rlfactory_core.reporting.trajectories import StoredTrajectory

_MAX_LINE = 100  # characters of a tool result or answer in the example


def print_summary(folder: RunFolder, stream: TextIO) -> None:
    """Write the summary of a finished (or stopped) run; with colours only on a terminal."""
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else 100)
    console.print(_learned(RunData.read(folder, pairs=1)))
    console.print()
    for label, place in _places(folder):  # never wrapped, so that it can be copied
        console.print(Text.assemble((f"{label:<13}", "dim"), place), soft_wrap=True)


def _learned(run: RunData) -> RenderableType:
    """Results, faults and an example."""
    parts: list[RenderableType] = ["", Text(headline(run.summary, len(run.metrics)), style="bold")]
    if rows := eval_rows(run.summary):
        parts += ["", _results(run, rows)]
    for name, value in control_results(run.summary):
        parts.append(Text(f"Control {number_label(name)}: exact match {value:.3f} after training."))
    if trouble := _faults(run):
        parts += ["", Text(trouble)]
    for pair in run.pairs:
        parts += ["", *_example(pair)]
    return Group(*parts)


def _results(run: RunData, rows: Iterable[EvalRow]) -> Table:
    rows = list(rows)
    sampled = any(value is not None for row in rows for value in row.sampled)
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("held-out exact match")
    table.add_column("greedy")
    if sampled:
        table.add_column("sampled at T=1")
    for row in rows:
        name = Text(number_label(row.slice) if row.slice else "overall", style="" if row.slice else "bold")
        cells = [_change(*row.greedy), *([_change(*row.sampled)] if sampled else [])]
        table.add_row(name, *cells)
    for metric, before, after in eval_extras(run.summary):
        table.add_row(number_label(metric), *([""] if sampled else []), _change(before, after))
    return table


def _change(before: float | None, after: float | None) -> Text:
    if before is None and after is None:
        return Text("")
    if before is None or after is None:
        return Text(f"{(before if after is None else after):.3f}")
    style = "green" if after > before else "red" if after < before else ""
    return Text.assemble((f"{before:.3f} → ", "dim"), (f"{after:.3f}", f"bold {style}"))


def _faults(run: RunData) -> str:
    faults = {kind: count for kind, count in (run.summary.get("faults") or {}).items() if count}
    if not faults:
        return ""
    kinds = ", ".join(f"{number_text(int(count))} {kind}" for kind, count in faults.items())
    masked = " Trajectories with infra or verifier faults were left out of the updates."
    return f"Faults: {kinds}.{masked if faults.keys() & {'infra', 'verifier'} else ''}"


def _example(pair: Pair) -> list[RenderableType]:
    stored = pair.after or pair.before
    if stored is None:
        return []
    sample = stored.trajectory.sample
    question = next((message.content for message in reversed(sample.messages) if message.role == "user"), "")
    parts: list[RenderableType] = [Text.assemble(("Example  ", "dim"), _short(question))]
    for label, side in (("before", pair.before), ("after", pair.after)):
        if side is not None:
            parts.append(Padding(_episode(label, side), (0, 0, 0, 2), expand=False))
    return parts


def _episode(label: str, stored: StoredTrajectory) -> Text:
    trajectory = stored.trajectory
    lines = [Text.assemble((label, "bold"), (f"  reward {number_text(trajectory.reward)}", "dim"))]
    for turn in trajectory.turns:
        lines += [
            Text.assemble("  ", (f"{call.name or '?'} ", "cyan"), _short(call.arguments_text))
            for call in turn.message.tool_calls
        ]
        lines += [Text(f"    {_short(result.content)}", style="dim") for result in turn.results]
        if turn.message.content.strip() and not turn.message.tool_calls:
            lines.append(Text(f"  {_short(turn.message.content)}"))
    return Text("\n").join(lines)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 1] + "…"


def _places(folder: RunFolder) -> Iterator[tuple[str, str]]:
    """What stands where, and the commands to go on with."""
    yield "everything", str(folder.path)
    if folder.report.exists():
        yield "plots", f"{folder.report} (open it in a browser)"
    checkpoint = folder.checkpoints / "latest"
    if checkpoint.exists():
        yield "model", f"{checkpoint} (Hugging Face layout)"
    yield "look closer", f"rlfactory trace {folder.path} --worst"
    plugin = folder.read_summary().get("plugin")
    if plugin and checkpoint.exists():
        yield "evaluate", f"rlfactory eval --plugin {plugin} --model {folder.path}"
