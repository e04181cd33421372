"""``rlfactory run``: train on a plugin's task, or go on with a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from rlfactory_core.cli.options import CONFIG, JUDGE, MCP, RECIPE, REWARD, nested, task_options
from rlfactory_core.config_load import merge
from rlfactory_core.errors import UsageError

PASSED_ON = "rlfactory.passed_on"
PLACES = {
    "data": ("data", "train"),
    "eval_data": ("data", "eval"),
    "mcp": ("tools", "mcp"),
    "steps": ("train", "steps"),
    "gpus": ("verl", "gpus"),
    "nodes": ("verl", "nodes"),
    "ray_address": ("verl", "ray_address"),
}


class RunCommand(click.Command):
    """Keeps what stands after ``--`` apart: it is for the engine's own configuration."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[PASSED_ON] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command(cls=RunCommand, context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]})
@click.option("--plugin", metavar="NAME|FILE.py", help="The task: an installed plugin's name, or a one-file plugin.")
@click.option("--engine", help="What trains: local (default: this machine) or verl (verl and vLLM on Ray).")
@click.option("--model", metavar="PATH|HUB_ID", help="A Hugging Face causal LM. Default: the task's own tiny model.")
@click.option("--data", type=click.Path(path_type=Path), help="Training data of your own: JSONL or parquet.")
@click.option("--eval-data", type=click.Path(path_type=Path), help="Held-out data of your own.")
@MCP
@REWARD
@JUDGE
@RECIPE
@CONFIG
@click.option("--steps", type=int, help="Training steps.")
@click.option("--seed", type=int, help="Of everything random.")
@click.option("--device", help="auto, cpu, cuda or cuda:N.")
@click.option("--gpus", type=int, help="verl: GPUs of each machine. Default: all.")
@click.option("--nodes", type=int, help="verl: machines.")
@click.option("--ray-address", help="verl: a running Ray cluster, or auto. Default: one of our own.")
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder. Default: runs/<time>-<plugin>.")
@click.option("--logger", "loggers", multiple=True, help="tensorboard, wandb or trackio; may be repeated.")
@click.option("--resume", "resumed", metavar="RUN", help="Go on with this run from its latest checkpoint.")
@click.option("--dry-run", is_flag=True, help="Only show the whole configuration, the engine's own included.")
@click.argument(
    "rest", nargs=-1, type=click.UNPROCESSED, metavar="[--TASK-OPTION VALUE] [KEY=VALUE]... [-- ENGINE_KEY=VALUE...]"
)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    file: Path | None,
    judge: str | None,
    recipe: str | None,
    resumed: str | None,
    dry_run: bool,
    rest: tuple[str, ...],
    **options: Any,
) -> None:
    """Train a model on a plugin's task, or without one on data and tools of your own (--data, --mcp).

    Any other --NAME VALUE is an option of the task (`rlfactory plugins info NAME` lists them), and KEY=VALUE sets any
    key of the configuration, such as train.lr=3e-4. What stands after -- goes to verl's own configuration.
    """
    from rlfactory_core import runner
    from rlfactory_core.ui.progress import make_progress
    from rlfactory_core.ui.summary import print_summary

    overrides = task_options(list(rest))
    passed_on = ctx.meta.get(PASSED_ON, [])
    if resumed is None:
        given = nested(options, PLACES)
        if passed_on:
            given = merge(given, {"verl": {"overrides": passed_on}})
        prepared = runner.prepare(file, [given, *overrides], judge, recipe)
        if dry_run:
            click.echo(runner.explain(prepared))
            return
        with make_progress(sys.stdout) as progress:
            folder = runner.run(prepared, progress)
    else:
        if passed_on or dry_run:
            raise UsageError("--resume goes on as the run began: it takes neither --dry-run nor keys after `--`.")
        overrides += _resume_overrides(ctx.command, {**options, "file": file, "judge": judge, "recipe": recipe})
        with make_progress(sys.stdout) as progress:
            folder = runner.resume(resumed, overrides, progress)
    print_summary(folder, sys.stdout)


def _resume_overrides(command: click.Command, options: dict[str, Any]) -> list[str]:
    """``--steps`` may be given with ``--resume``; any other option would contradict the run's own configuration."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    steps = given.pop("steps", None)
    if given:
        wrong = ", ".join(parameter.opts[0] for parameter in command.params if parameter.name in given)
        raise UsageError(
            f"--resume goes on with the run's own configuration; {wrong} cannot be given with it. "
            "Change single keys with KEY=VALUE, such as train.steps=200."
        )
    return [] if steps is None else [f"train.steps={steps}"]
