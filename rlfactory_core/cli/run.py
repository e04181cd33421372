"""``rlfactory run``: train on a plugin's task, or go on with a run."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.cli.options import (
    SETTINGS,
    engine_options,
    engine_sections,
    meant_options,
    run_overrides,
    task_options,
    whole_run_options,
)
from rlfactory_core.cli.output import echo
from rlfactory_core.errors import UsageError
from rlfactory_core.utils.display import without_credentials

if TYPE_CHECKING:
    from rlfactory_core.reporting.folder import RunFolder

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


_WORDS = (
    whole_run_options,
    click.option("--steps", type=int, help="Training steps; with --warm-start, those after it."),
    click.option(
        "--warm-start",
        metavar="SOURCE",
        help="Learn first from solve (the task's own), a file or a run; warm_start.steps=N and other keys of train.",
    ),
    click.option("--where", metavar="CONDITION", help="Of --warm-start: what is learnt from, such as 'reward >= 1'."),
    click.option("--out", type=click.Path(path_type=Path), help="The run's folder. Default: runs/<time>-<plugin>."),
    click.option("--logger", "loggers", multiple=True, help="tensorboard, wandb or trackio; may be repeated."),
    click.option("--resume", "resumed", metavar="RUN", help="Go on with this run from its latest checkpoint."),
    click.option("--resume-or-start", is_flag=True, help="Go on with the run in --out, or start it if there is none."),
    click.option("--dry-run", is_flag=True, help="Only check data and model folder, and show the whole configuration."),
    click.argument(
        "rest",
        nargs=-1,
        type=click.UNPROCESSED,
        metavar="[--TASK-OPTION VALUE] [KEY=VALUE]... [-- ENGINE_KEY=VALUE...]",
    ),
)


def run_words(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds all options of ``run``, for a command that is a `RunCommand`."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_WORDS), command)


@click.command(cls=RunCommand, context_settings=SETTINGS)
@run_words
@click.pass_context
def run(ctx: click.Context, /, resumed: str | None, rest: tuple[str, ...], **options: Any) -> None:
    """Train a model on a plugin's task, or without one on data and tools of your own (--data, --mcp).

    Any other --NAME VALUE is an option of the task (`rlfactory plugins info NAME` lists them), and KEY=VALUE sets any
    key of the configuration, such as train.lr=3e-4. Keys after -- go to the engine's own configuration.
    """
    from rlfactory_core import runner
    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_core.cli.ui.summary import print_summary

    if resumed is None:
        folder = _started(ctx, rest, **options)
    else:
        overrides = resume_overrides(ctx, options, rest)
        with make_progress(sys.stdout) as progress:
            folder = runner.resume(resumed, overrides, progress)
    if folder is not None:
        print_summary(folder, sys.stdout)


def _started(
    ctx: click.Context,
    rest: Sequence[str],
    *,
    file: Path | None,
    judge: str | None,
    recipe: str | None,
    resume_or_start: bool,
    dry_run: bool,
    **options: Any,
) -> RunFolder | None:
    """A new run, or the one in ``--out``; None if the run is only shown."""
    from rlfactory_core import runner
    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_core.plugins.registry import Registry
    from rlfactory_core.runner.inputs import check_inputs
    from rlfactory_core.runner.resolving import explain, given_keys

    registry = Registry()
    overrides = run_overrides(options, rest, registry, ctx.meta.get(PASSED_ON, ()))
    with meant_options(ctx.command):
        prepared = runner.prepare(file, overrides, judge, recipe, registry)
    if dry_run:
        check_inputs(prepared)
        echo(explain(prepared))
        return None
    prepared = replace(prepared, command=_again(ctx.meta[WORDS]))
    with make_progress(sys.stdout) as progress:
        if options["model"] and prepared.config.model not in (options["model"], os.path.abspath(options["model"])):
            progress.say(f"model {options['model']}: {prepared.config.model}")
        if resume_or_start:
            return runner.resume_or_start(prepared, given_keys(file, overrides), progress)
        return runner.run(prepared, progress)


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


def resume_overrides(ctx: click.Context, options: Mapping[str, Any], rest: Sequence[str]) -> list[str]:
    """What ``--resume`` changes: ``--steps`` and keys. Any other option would contradict the run's own configuration.

    Raises:
        UsageError: there is one.
    """
    if options["resume_or_start"]:
        raise UsageError("--resume goes on with a run, and --resume-or-start may start one: give one of them.")
    if options["dry_run"] or PASSED_ON in ctx.meta:
        raise UsageError("--resume goes on as the run began: it takes neither --dry-run nor keys after `--`.")
    given = {name: value for name, value in options.items() if value not in (None, (), False)}
    steps = given.pop("steps", None)
    if given:
        wrong = ", ".join(each.opts[0] for each in ctx.command.params if each.name in given)
        raise UsageError(
            f"--resume goes on with the run's own configuration; {wrong} cannot be given with it. "
            "Change single keys with KEY=VALUE, such as train.steps=200."
        )
    from rlfactory_core.plugins.registry import Registry

    overrides = task_options(rest, engine_options(engine_sections(Registry(), None, None)))
    return overrides + ([] if steps is None else [f"train.steps={steps}"])
