"""``rlfactory eval``: measure a run, a model or an endpoint on a plugin's held-out samples."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click

from rlfactory_core.cli.options import JSON, PLACES, REST, SEED, SETTINGS, nested, run_options, task_options
from rlfactory_core.cli.output import echo, echo_json

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
    from rlfactory_core.runner.choice import ModelChoice
    from rlfactory_core.runner.evaluating import evaluate_run

    chosen = ModelChoice(**{field.name: options.pop(field.name) for field in fields(ModelChoice)})
    overrides: list[str | Mapping[str, Any]] = [nested(options, _PLACES), *task_options(rest)]
    with make_progress(sys.stderr if as_json else sys.stdout) as progress:
        done = evaluate_run(chosen, overrides, progress)
    if as_json:
        echo_json({**asdict(done), "folder": str(done.folder.path)})
        return
    from rlfactory_core.cli.ui.evaluation import print_evaluation

    echo(f"\n{done.plugin}, {done.model}")
    print_evaluation(done.results, sys.stdout)
    echo(f"\neverything   {done.folder.path}\nlook closer  rlfactory trace {done.folder.path} --worst")
