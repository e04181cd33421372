"""``rlfactory rescore``: the rewards of stored trajectories anew, and what changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.cli.options import CONFIG, JSON, JUDGE, REST, REWARD, SETTINGS, nested, task_options
from rlfactory_core.cli.output import echo, echo_json

if TYPE_CHECKING:
    from rich.table import Table

    from rlfactory_core.reporting.rescored import Comparison, RescoredAttempt
    from rlfactory_core.runner.rescoring import Rescoring


@click.command(context_settings=SETTINGS)
@click.argument("run")
@click.option("--plugin", metavar="NAME|FILE.py", help="The task. Default: that of the run, as it is now.")
@REWARD
@JUDGE
@click.option("--where", default="", metavar="EXPR", help="Only these attempts, such as 'reward >= 1 and turns > 2'.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to save. Default: a folder within the run's.")
@click.option("--limit", type=click.IntRange(min=0), default=10, show_default=True, help="Changed attempts to show.")
@click.option("--expect-same", is_flag=True, help="Exit with 1 if anything changed: a test of the reward.")
@CONFIG
@JSON
@REST
@click.pass_context
def rescore(
    ctx: click.Context,
    /,
    run: str,
    judge: str | None,
    where: str,
    out: Path | None,
    limit: int,
    expect_same: bool,
    file: Path | None,
    as_json: bool,
    rest: tuple[str, ...],
    **options: Any,
) -> None:
    """Score the stored trajectories of RUN anew, a run or an evaluation, without sampling, and say what changed.

    The configuration is that of the run, and what is given here overrides it: a reward, the plugin's file. The
    trajectories as they are scored now go to a folder that `rlfactory trace` and `rlfactory report` read. Any other
    --NAME VALUE is an option of the task, and KEY=VALUE sets any key of the configuration.
    """
    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_core.runner.rescoring import rescore_run

    overrides: list[str | Mapping[str, Any]] = [nested(options, {}), *task_options(rest)]
    with make_progress(sys.stderr if as_json else sys.stdout) as progress:
        done = rescore_run(run, overrides, progress, file=file, judge=judge, where=where, out=out)
    if as_json:
        changed = [each.record for each in done.comparison.most_changed[:limit]]
        record = {**done.comparison.record, "most_changed": changed}
        echo_json({"folder": str(done.folder.path), "rewards": dict(done.rewards), **record})
    else:
        _print(done, limit)
    ctx.exit(1 if expect_same and done.comparison.whole.changed else 0)


def _print(done: Rescoring, limit: int) -> None:
    from rlfactory_core.cli.ui.console import make_console
    from rlfactory_core.reporting.progress import number_label, number_text
    from rlfactory_core.reporting.rescored import change_text

    comparison, whole, terminal = done.comparison, done.comparison.whole, sys.stdout.isatty()
    rewards = ", ".join(f"{number_label(name)} {number_text(weight)}" for name, weight in done.rewards.items())
    echo(f"\n{done.source.path}, scored anew with {rewards}")
    make_console(sys.stdout, width=None if terminal else 120).print(_table(comparison))
    scores = ", ".join(f"{number_label(name)} {change_text(*means)}" for name, means in whole.scores.items())
    for line in (comparison.text, f"Mean scores: {scores}.", *comparison.notes, *_changed(comparison, limit)):
        echo(line)
    echo(f"\neverything   {done.folder.path}")
    if changed := comparison.most_changed:
        echo(f"look closer  rlfactory trace {done.folder.path} {_selection(changed[0])}")


def _table(comparison: Comparison) -> Table:
    from rich.table import Table

    from rlfactory_core.reporting.rescored import change_text

    parts = comparison.parts
    parts += [comparison.whole] if len(parts) > 1 else []
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column in ("", "attempts", "changed", "higher", "lower", "masked", "mean reward"):
        table.add_column(column, no_wrap=True)
    for part in parts:
        counts = (part.attempts, part.changed, part.higher, part.lower)
        masked = f"{part.masked[0]} → {part.masked[1]}" if any(part.masked) else "0"
        table.add_row(part.name, *(f"{count:,}" for count in counts), masked, change_text(*part.reward))
    return table


def _changed(comparison: Comparison, limit: int) -> Iterator[str]:
    changed = comparison.most_changed
    if changed[:limit]:
        yield "\nchanged most"
    for each in changed[:limit]:
        yield f"  {each.where}: {each.text}"
    if len(changed) > limit:
        yield f"  and {len(changed) - limit:,} more; --limit {len(changed)} shows all"


def _selection(attempt: RescoredAttempt) -> str:
    """The options of `rlfactory trace` that show an attempt."""
    file = str(attempt.file)
    step = file.removeprefix("eval-") if file.startswith("eval-") else file
    return f"--step {step} --sample {attempt.sample}"
