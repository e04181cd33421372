"""``rlfactory plugins check``: what has to hold of a plugin's task, tried out without a model."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.cli.options import CONFIG, nested, task_options

if TYPE_CHECKING:
    from rlfactory_core.testing.checks.result import CheckResult

_WIDTH = 13  # of the names


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]})
@click.argument("plugin", metavar="NAME|FILE.py")
@click.option("--only", multiple=True, metavar="CHECK", help="This check alone; may be repeated.")
@click.option("--model", "models", multiple=True, metavar="PATH", help="Also try this model's tokenizer in `tokens`.")
@click.option("--seed", type=int, help="Of everything random.")
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="The results as JSON on standard output, progress on the other.")
@click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[--TASK-OPTION VALUE] [KEY=VALUE]...")
@click.pass_context
def check(
    ctx: click.Context,
    /,
    plugin: str,
    only: tuple[str, ...],
    models: tuple[str, ...],
    seed: int | None,
    file: Path | None,
    as_json: bool,
    rest: tuple[str, ...],
) -> None:
    """Play the task NAME with policies that need no model, and say what is wrong with it; exit with 1 if anything is.

    The checks: oracle, floor, determinism, leakage, isolation, cancellation, close, faults, tokens, pickling, splits,
    bounds. Any other --NAME VALUE is an option of the task, and KEY=VALUE sets any key of the configuration.
    """
    from rlfactory_core.config_load import load_yaml
    from rlfactory_core.testing.checks.running import chosen, run_checks
    from rlfactory_core.testing.checks.subject import Subject
    from rlfactory_core.ui.progress import make_progress

    names, started = chosen(only), time.perf_counter()
    overrides: list[str | Mapping[str, Any]] = [load_yaml(file)] if file else []
    overrides += [nested({"seed": seed}, {}), *task_options(list(rest))]
    results = []
    with (
        make_progress(sys.stderr if as_json else sys.stdout) as progress,
        redirect_stdout(sys.stderr if as_json else sys.stdout),  # what a task prints is not our JSON
        Subject(plugin, overrides, models=models, progress=progress) as subject,
    ):
        subject.open()
        progress.stage("check", len(names), "check")
        for result in run_checks(subject, names):
            results.append(result)
            progress.advance()
            for line in _lines(result):
                progress.say(line)
    seconds = time.perf_counter() - started
    if as_json:
        click.echo(_json(plugin, results, seconds))
    else:
        click.echo(f"\n{_verdict(plugin, results)} {seconds:.0f} s")
    ctx.exit(1 if any(result.passed is False for result in results) else 0)


def _lines(result: CheckResult) -> list[str]:
    word = {True: "pass", False: "FAIL", None: "skip"}[result.passed]
    lines = [f"{word}  {result.name:<{_WIDTH}}{result.seconds:6.1f} s"]
    for evidence in result.evidence:
        first, *more = evidence.splitlines()
        lines += [f"      {first}", *(f"        {line}" for line in more)]
    return lines


def _verdict(plugin: str, results: Sequence[CheckResult]) -> str:
    from rlfactory_core.testing.checks.rewards import of

    failed = [result.name for result in results if result.passed is False]
    if failed:
        return f"{plugin}: {of(len(failed), len(results), 'check')} failed: {', '.join(failed)}."
    skipped = [result.name for result in results if result.passed is None]
    passed = len(results) - len(skipped)
    rest = f" ({', '.join(skipped)} did not apply)" if skipped else ""
    return f"{plugin}: {passed} check{'' if passed == 1 else 's'} passed{rest}."


def _json(plugin: str, results: Sequence[CheckResult], seconds: float) -> str:
    from dataclasses import asdict

    checks = [asdict(result) for result in results]
    passed = not any(result.passed is False for result in results)
    found = {"plugin": plugin, "passed": passed, "seconds": seconds, "checks": checks}
    return json.dumps(found, indent=2, ensure_ascii=False)
