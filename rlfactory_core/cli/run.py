"""``rlfactory run``: train on a plugin's task, or go on with a run."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rlfactory_core.cli.options import (
    SETTINGS,
    engine_options,
    engine_sections,
    given_run,
    meant_options,
    task_options,
    whole_run_options,
)
from rlfactory_core.cli.output import echo
from rlfactory_core.errors import UsageError
from rlfactory_core.settings import merge
from rlfactory_core.utils.display import without_credentials

PASSED_ON = "rlfactory.passed_on"
WORDS = "rlfactory.words"


class RunCommand(click.Command):
    """Keeps the words after ``--`` for the engine's own configuration, and adds engines' options to the help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = tuple(args)
        if "--" in args:
            at = args.index("--")
            ctx.meta[PASSED_ON] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from rlfactory_core.plugins.registry import Registry

        super().format_options(ctx, formatter)
        rows: list[tuple[str, str]] = []
        for engine, section in Registry().engine_sections(installed=True).items():
            docs = {name: section.model_fields[name].description or "" for name in section.options}
            rows += [(f"--{name.replace('_', '-')}", f"{engine}: {doc}") for name, doc in docs.items()]
        if rows:
            with formatter.section("Options of installed engines"):
                formatter.write_dl(rows)


@click.command(cls=RunCommand, context_settings=SETTINGS)
@whole_run_options
@click.option("--steps", type=int, help="Training steps; with --warm-start, those after it.")
@click.option(
    "--warm-start",
    metavar="SOURCE",
    help="Learn first from solve (the task's own), a file or a run.",
)
@click.option("--where", metavar="CONDITION", help="Of --warm-start: which are learnt from, such as 'reward >= 1'.")
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder. Default: runs/<time>-<plugin>.")
@click.option("--logger", "loggers", multiple=True, help="tensorboard, wandb or trackio; may be repeated.")
@click.option("--resume", "resumed", metavar="RUN", help="Go on with this run from its latest checkpoint.")
@click.option("--resume-or-start", is_flag=True, help="Go on with the run in --out, or start it if there is none.")
@click.option("--dry-run", is_flag=True, help="Only check data and model folder, and show the whole configuration.")
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
    resume_or_start: bool,
    dry_run: bool,
    warm_start: str | None,
    where: str | None,
    rest: tuple[str, ...],
    **options: Any,
) -> None:
    """Train a model on a plugin's task, or without one on data and tools of your own (--data, --mcp).

    Any other --NAME VALUE is an option of the task (`rlfactory plugins info NAME` lists them), and KEY=VALUE sets any
    key of the configuration, such as train.lr=3e-4. Keys after -- go to the engine's own configuration.
    """
    from rlfactory_core import runner
    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_core.cli.ui.summary import print_summary
    from rlfactory_core.plugins.registry import Registry
    from rlfactory_core.runner.inputs import check_inputs
    from rlfactory_core.runner.resolving import explain, given_keys

    registry = Registry()
    engines = engine_sections(registry, options["plugin"], options["engine"])
    overrides = task_options(rest, engine_options(engines))
    passed_on = ctx.meta.get(PASSED_ON, [])
    if resumed is not None and resume_or_start:
        raise UsageError("--resume goes on with a run, and --resume-or-start may start one: give one of them.")
    if where is not None and warm_start is None:
        raise UsageError("--where is of --warm-start, which is not given. For a stage: train.where.")
    if resumed is None:
        given = given_run(options)
        if passed_on:
            takers = [{engine: {item.after_dashes: passed_on}} for engine, item in engines.items() if item.after_dashes]
            if not takers:
                raise UsageError(
                    f"`-- {passed_on[0]}` is for an engine's own configuration. Add --engine, such as verl."
                )
            given = merge(given, takers[-1])
        with meant_options(ctx.command):
            prepared = runner.prepare(
                file, [given, *overrides], judge, recipe, registry, warm_start=_warm_start(warm_start, where)
            )
        if dry_run:
            check_inputs(prepared)
            echo(explain(prepared))
            return
        prepared = replace(prepared, command=_again(ctx.meta[WORDS]))
        with make_progress(sys.stdout) as progress:
            if options["model"] and prepared.config.model not in (options["model"], os.path.abspath(options["model"])):
                progress.say(f"model {options['model']}: {prepared.config.model}")
            if resume_or_start:
                folder = runner.resume_or_start(prepared, given_keys(file, [given, *overrides]), progress)
            else:
                folder = runner.run(prepared, progress)
    else:
        if passed_on or dry_run:
            raise UsageError("--resume goes on as the run began: it takes neither --dry-run nor keys after `--`.")
        own = {"file": file, "judge": judge, "recipe": recipe, "warm_start": warm_start}
        overrides += _resume_overrides(ctx.command, {**options, **own})
        with make_progress(sys.stdout) as progress:
            folder = runner.resume(resumed, overrides, progress)
    print_summary(folder, sys.stdout)


def _warm_start(source: str | None, where: str | None) -> dict[str, str] | None:
    """The keys of the stage that ``--warm-start`` asks for."""
    return None if source is None else {"source": source, **({} if where is None else {"where": where})}


def _again(words: Sequence[str]) -> str:
    """The command, to which words can be added, for another run like this one; empty: keys after ``--`` are its end."""
    if "--" in words:
        return ""
    kept, left = [], list(words)
    while left:
        word = left.pop(0)
        if word == "--out":
            del left[:1]
        elif not word.startswith("--out=") and word != "--resume-or-start":
            kept.append(word)
    return without_credentials(shlex.join(["rlfactory", "run", *kept]))


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
