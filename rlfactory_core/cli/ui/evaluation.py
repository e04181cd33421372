"""The results of an evaluation as a table: each metric, greedy and sampled, with its 95 % confidence interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

from rich.table import Table
from rich.text import Text

from rlfactory_core.cli.ui.console import make_console
from rlfactory_core.reporting.progress import number_label

SAMPLED, CONTROL = "sampled/", "control/"
_COUNTS = ("samples", "masked")


def print_evaluation(results: Mapping[str, float], stream: TextIO) -> None:
    """Write the flat results of `Engine.evaluate`, with colours only on a terminal."""
    console = make_console(stream, width=None if stream.isatty() else 100)
    console.print(_table(results))
    samples, masked = int(results.get("samples", 0)), int(results.get("masked", 0))
    console.print(Text(f"{samples:,} samples; in brackets the 95 % confidence interval over samples.", style="dim"))
    if masked:
        sources = [f"{key.partition('/')[2]} {int(results[key]):,}" for key in results if key.startswith("masked/")]
        text = f"{masked:,} greedy attempts were masked by faults and are not counted: {', '.join(sources)}."
        console.print(Text(text, style="yellow"))


def _table(results: Mapping[str, float]) -> Table:
    columns = {"greedy": ""}
    if any(key.startswith(SAMPLED) for key in results):
        columns["sampled at T=1"] = SAMPLED
    controls = dict.fromkeys(key.split("/")[1] for key in results if key.startswith(CONTROL))
    columns |= {f"control: {number_label(name)}": f"{CONTROL}{name}/" for name in controls}
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("held out")
    for column in columns:
        table.add_column(column)
    for metric in _metrics(results):
        cells = [_cell(results, prefix, metric) for prefix in columns.values()]
        table.add_row(Text(number_label(metric), style="" if "/" in metric else "bold"), *cells)
    return table


def _metrics(results: Mapping[str, float]) -> list[str]:
    """The metrics without prefixes, in the order of the results, and without bounds and counts."""
    bare = (key.split("/", 2)[2] if key.startswith(CONTROL) else key.removeprefix(SAMPLED) for key in results)
    names = dict.fromkeys(bare)
    return [name for name in names if name not in _COUNTS and _with_end(name, "low") in names]


def _with_end(metric: str, end: str) -> str:
    """``exact_match/two_hop`` -> ``exact_match_low/two_hop``."""
    name, slash, rest = metric.partition("/")
    return f"{name}_{end}{slash}{rest}"


def _cell(results: Mapping[str, float], prefix: str, metric: str) -> Text:
    value = results.get(prefix + metric)
    if value is None:
        return Text("")
    low, high = results[prefix + _with_end(metric, "low")], results[prefix + _with_end(metric, "high")]
    return Text.assemble(f"{value:.3f} ", (f"[{low:.3f}, {high:.3f}]", "dim"))
