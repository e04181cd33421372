"""``rlfactory eval``: measure a run, a model or an endpoint on a plugin's held-out samples."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TextIO

import click
from rich.table import Table
from rich.text import Text

from rlfactory_core.cli.options import JSON, PLACES, REST, SEED, SETTINGS, nested, run_options, task_options
from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.cli.ui.console import make_console
from rlfactory_core.reporting.eval_table import EvalTable
from rlfactory_core.reporting.progress import number_label

SAMPLED, CONTROL = "sampled/", "control/"
_COUNTS = ("samples", "masked")
_PLACES = PLACES | {"samples": ("eval", "limit"), "attempts": ("eval", "attempts"), "data": ("data", "eval")}


@click.command("eval", context_settings=SETTINGS)
@click.option("--plugin", metavar="NAME|FILE.py", help="The task. Default: that of the run.")
@click.option("--model", metavar="MODEL", help="As of `run`; with --api a served model's id.")
@click.option("--api", metavar="URL", help="An OpenAI-compatible server, such as http://127.0.0.1:8000/v1.")
@click.option("--samples", type=click.IntRange(min=0), help="How many held-out samples; 0: all.")
@click.option("--attempts", type=click.IntRange(min=1), help="Per sample at temperature 1, for pass@k. Default: 4.")
@click.option("--data", type=click.Path(path_type=Path), help="Held-out data of your own: JSONL or parquet.")
@run_options
@SEED
@click.option("--device", help="auto, cpu, cuda or cuda:N.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to save. Default: runs/<time>-<plugin>-eval.")
@JSON
@REST
def evaluate(as_json: bool, rest: tuple[str, ...], **options: Any) -> None:
    """Measure a model on a plugin's held-out samples: greedy, sampled (pass@k) and with the task's controls.

    A run brings its best or latest checkpoint, its plugin and its configuration. A server's key is read from
    RLFACTORY_API_KEY, or from OPENAI_API_KEY for OpenAI's own server. Any other --NAME VALUE is an option of the task,
    and KEY=VALUE sets any key of the configuration, such as rollout.max_turns=6.
    """
    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_core.runner.evaluating import ModelChoice, evaluate_run

    chosen = ModelChoice(**{field.name: options.pop(field.name) for field in fields(ModelChoice)})
    overrides: list[str | Mapping[str, Any]] = [nested(options, _PLACES), *task_options(rest)]
    with make_progress(sys.stderr if as_json else sys.stdout) as progress:
        done = evaluate_run(chosen, overrides, progress)
    if as_json:
        echo_json({**asdict(done), "folder": str(done.folder.path)})
        return
    echo(f"\n{done.plugin}, {done.model}")
    _print(done.results, sys.stdout, {row[0] for table in done.tables for row in table.texts if row[0]})
    for table in done.tables:
        _print_table(table, sys.stdout)
    echo(f"\neverything   {done.folder.path}\nlook closer  rlfactory trace {done.folder.path} --worst")


def _print(results: Mapping[str, float], stream: TextIO, told: Collection[str]) -> None:
    """Each metric, greedy and sampled, with its 95 % confidence interval; with colours only on a terminal.

    Args:
        told: slices that are left out, since the task's own tables have them.
    """
    console = make_console(stream, width=None if stream.isatty() else 100)
    console.print(_table(results, [name for name in _metrics(results) if name.partition("/")[2] not in told]))
    samples, masked = int(results.get("samples", 0)), int(results.get("masked", 0))
    console.print(Text(f"{samples:,} samples; in brackets the 95 % confidence interval over samples.", style="dim"))
    if masked:
        sources = [f"{key.partition('/')[2]} {int(results[key]):,}" for key in results if key.startswith("masked/")]
        text = f"{masked:,} greedy attempts were masked by faults and are not counted: {', '.join(sources)}."
        console.print(Text(text, style="yellow"))


def _print_table(table: EvalTable, stream: TextIO) -> None:
    """A table of the task's own, with its notes."""
    drawn = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    for number, column in enumerate(table.columns):
        drawn.add_column(Text(column), justify="right" if number else "left")
    for row in table.texts:
        drawn.add_row(*map(Text, row))
    console = make_console(stream, width=None if stream.isatty() else 100)
    console.print(Text(f"\n{table.title}", style="bold"))
    console.print(drawn)
    for note in table.notes:
        console.print(Text(note, style="dim"))


def _table(results: Mapping[str, float], metrics: Sequence[str]) -> Table:
    columns = {"greedy": ""}
    if any(key.startswith(SAMPLED) for key in results):
        columns["sampled at T=1"] = SAMPLED
    controls = dict.fromkeys(key.split("/")[1] for key in results if key.startswith(CONTROL))
    columns |= {f"control: {number_label(name)}": f"{CONTROL}{name}/" for name in controls}
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("held out")
    for column in columns:
        table.add_column(column)
    for metric in metrics:
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
