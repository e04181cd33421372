"""``rlfactory plugins check``: checks a plugin's task without a model."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.cli.options import (
    CONFIG,
    DATA,
    EVAL_DATA,
    JSON,
    MCP,
    PLACES,
    REST,
    REWARD,
    SEED,
    SETTINGS,
    nested,
    task_options,
)
from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.errors import UsageError

if TYPE_CHECKING:
    from rlfactory_devkit.checks.result import CheckResult

_KEY = re.compile(r"[A-Za-z_][\w.]*=")
_WIDTH = 13  # of the names


@click.command(context_settings=SETTINGS)
@click.argument("plugin", metavar="[NAME|FILE.py]", required=False)
@click.option("--only", multiple=True, metavar="CHECK", help="This check alone; may be repeated.")
@click.option("--run", default="", metavar="RUN", help="Also score this run's trajectories anew, in `stored`.")
@click.option("--model", "models", multiple=True, metavar="PATH", help="Also try this model's tokenizer in `tokens`.")
@DATA
@EVAL_DATA
@MCP
@REWARD
@SEED
@CONFIG
@JSON
@REST
@click.pass_context
def check(
    ctx: click.Context,
    /,
    plugin: str | None,
    only: tuple[str, ...],
    run: str,
    models: tuple[str, ...],
    file: Path | None,
    as_json: bool,
    rest: tuple[str, ...],
    **options: Any,
) -> None:
    """Play the task NAME with policies that need no model, and say what is wrong with it; exit with 1 if anything is.

    Without a NAME, it is the task of your own data and tools (--data, --mcp), as in `rlfactory run`; with --run that
    of the run, with the run's configuration.

    The checks: oracle, floor, determinism, leakage, isolation, cancellation, close, faults, tokens, pickling, splits,
    bounds, and with --run also stored. Any other --NAME VALUE is an option of the task, and KEY=VALUE sets any key of
    the configuration.
    """
    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_core.settings import load_yaml
    from rlfactory_core.tasks import NAME
    from rlfactory_devkit.checks import chosen, run_checks
    from rlfactory_devkit.checks.context import CheckContext, CheckOptions

    names, started = chosen(only, run=bool(run)), time.perf_counter()
    base = _configuration(run) if run else {}
    has_own = file or options["data"] or options["eval_data"] or options["mcp"]
    task, words = _named((plugin, *rest) if plugin else (), base["plugin"] if run else NAME if has_own else "")
    overrides: list[str | Mapping[str, Any]] = [{**base, "plugin": task}] if run else []
    overrides += [load_yaml(file)] if file else []
    overrides += [nested(options, PLACES), *task_options(words)]
    results = []
    with (
        make_progress(sys.stderr if as_json else sys.stdout) as progress,
        redirect_stdout(sys.stderr if as_json else sys.stdout),  # keeps prints of a task out of the JSON
        CheckContext(task, overrides, CheckOptions(models, run), progress=progress) as context,
    ):
        context.open()
        progress.stage("check", len(names), "check")
        for result in run_checks(context, names):
            results.append(result)
            progress.advance()
            for line in _lines(result):
                progress.say(line)
    seconds, passed = time.perf_counter() - started, not any(result.passed is False for result in results)
    if as_json:
        checks = [asdict(result) for result in results]
        echo_json({"plugin": task, "passed": passed, "seconds": seconds, "checks": checks})
    else:
        echo(f"\n{task}: {_verdict(results)} {seconds:.0f} s")
    ctx.exit(0 if passed else 1)


def _named(words: tuple[str, ...], otherwise: str) -> tuple[str, tuple[str, ...]]:
    """The task that the words name, and the other words; a KEY=VALUE may come before the name.

    Args:
        otherwise: the task where they name none; empty: that is refused.
    """
    keys = tuple(takewhile(_KEY.match, words))
    others = words[len(keys) :]
    if others and not others[0].startswith("-"):
        return others[0], (*keys, *others[1:])
    if not otherwise:
        raise UsageError("Name the task: a plugin, a FILE.py, or data and tools of your own (--data, --mcp).")
    return otherwise, words


def _configuration(run: str) -> dict[str, Any]:
    """Of a run of one task."""
    from rlfactory_core.reporting import RunFolder

    folder = RunFolder.open(run)
    config = folder.read_config()
    if config.get("tasks"):
        raise UsageError(
            f"{folder.path} has several tasks, and a check is of one. Compare its rewards with: "
            f"rlfactory rescore {folder.path} --expect-same"
        )
    return {**config, "out": None}


def _lines(result: CheckResult) -> list[str]:
    word = {True: "pass", False: "FAIL", None: "skip"}[result.passed]
    lines = [f"{word}  {result.name:<{_WIDTH}}{result.seconds:6.1f} s"]
    for evidence in result.evidence:
        first, *more = evidence.splitlines()
        lines += [f"      {first}", *(f"        {line}" for line in more)]
    return lines


def _verdict(results: Sequence[CheckResult]) -> str:
    from rlfactory_devkit.rewards import of

    failed = [result.name for result in results if result.passed is False]
    if failed:
        return f"{of(len(failed), len(results), 'check')} failed: {', '.join(failed)}."
    skipped = [result.name for result in results if result.passed is None]
    passed = len(results) - len(skipped)
    rest = f" ({', '.join(skipped)} did not apply)" if skipped else ""
    return f"{passed} check{'' if passed == 1 else 's'} passed{rest}."
