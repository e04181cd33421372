"""Prints the summary of a run: results, an example, the places of its files, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlfactory_core.cli.ui.console import make_console
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import number_label, number_text
from rlfactory_core.reporting.run_data import (
    EvalRow,
    Pair,
    RunData,
    control_results,
    eval_extras,
    eval_rows,
    faults_text,
    headline,
    masked_text,
    success_metric,
)
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.utils.display import shortened

_MAX_WARNINGS = 5
_MAX_LINE = 500  # most characters of a tool result or answer in the example


def print_summary(folder: RunFolder, stream: TextIO) -> None:
    """Write the summary of a finished or stopped run, with colours only on a terminal."""
    console = make_console(stream, width=None if stream.isatty() else 100)
    console.print(_outcome(RunData.read(folder, pairs=1)))
    console.print()
    for label, place in _places(folder):  # not wrapped, so that they can be copied
        console.print(Text.assemble((f"{label:<13}", "dim"), place), soft_wrap=True)


def _outcome(run: RunData) -> RenderableType:
    parts: list[RenderableType] = ["", Text(headline(run.summary, len(run.metrics)), style="bold")]
    if rows := eval_rows(run.summary):
        parts += ["", _results(run, rows)]
    for name, value in control_results(run.summary):
        parts.append(Text(f"Control ({number_label(name)}): {_metric(run)} {value:.3f} after training."))
    faults, masked = faults_text(run.summary), masked_text(run.summary)
    if faults or masked:
        texts = [f"Faults in training: {faults}." if faults else "", f"{masked}." if masked else ""]
        parts += ["", Text(" ".join(filter(None, texts)))]
    warnings = [str(text) for text in run.summary.get("warnings") or ()]
    parts += [""] if warnings else []
    if len(warnings) > _MAX_WARNINGS:  # the last ones say most of how the run ended
        parts.append(Text(f"{len(warnings) - _MAX_WARNINGS} earlier warnings: see summary.json.", style="dim"))
    parts += [Text.assemble(("warning: ", "yellow"), text) for text in warnings[-_MAX_WARNINGS:]]
    for pair in run.pairs:
        parts += ["", *_example(pair)]
    return Group(*parts)


def _results(run: RunData, rows: Sequence[EvalRow]) -> Table:
    sampled = any(value is not None for row in rows for value in row.sampled)
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(f"held-out {_metric(run)}")
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


def _metric(run: RunData) -> str:
    return number_label(success_metric(run.summary))


def _change(before: float | None, after: float | None) -> Text:
    if before is None and after is None:
        return Text("")
    if before is None or after is None:
        return Text(f"{(before if after is None else after):.3f}")
    style = "green" if after > before else "red" if after < before else ""
    return Text.assemble((f"{before:.3f} → ", "dim"), (f"{after:.3f}", f"bold {style}"))


def _example(pair: Pair) -> list[RenderableType]:
    stored = pair.after or pair.before
    if stored is None:
        return []
    sample = stored.trajectory.sample
    question = next((message.content for message in reversed(sample.messages) if message.role == "user"), "")
    parts: list[RenderableType] = [_line(("Example  ", "dim"), _short(question))]
    for label, side in (("before", pair.before), ("after", pair.after)):
        if side is not None:
            parts += _episode(label, side)
    return parts


def _episode(label: str, stored: StoredTrajectory) -> list[Text]:
    trajectory = stored.trajectory
    lines = [_line("  ", (label, "bold"), (f"  reward {number_text(trajectory.reward)}", "dim"))]
    for turn in trajectory.turns:
        lines += [
            _line("    ", (f"{call.name or '?'} ", "cyan"), _short(call.arguments_text))
            for call in turn.message.tool_calls
        ]
        lines += [_line("      ", (_short(result.content), "dim")) for result in turn.results]
        if not turn.message.tool_calls:
            lines.append(_line("    ", _short(turn.message.content) or ("no answer", "dim")))
    return lines


def _line(*parts: str | tuple[str, str]) -> Text:
    """One line, cut at the width of the terminal."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _MAX_LINE)


def _places(folder: RunFolder) -> Iterator[tuple[str, str]]:
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
