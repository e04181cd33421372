"""``rlfactory judge``: serve a judge, measure it, and ask it one question."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from rlfactory_core.cli.commands import LazyCommand, LazyGroup
from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.errors import RunStopped, UsageError
from rlfactory_core.utils.display import printable
from rlfactory_judge.options import Mode

if TYPE_CHECKING:
    from rlfactory_judge.contract import Question, Reply
    from rlfactory_judge.options import JudgeOptions
    from rlfactory_judge.service.service import JudgeService
    from rlfactory_judge.trust.measuring import Measurement

URL = click.option(
    "--url", multiple=True, metavar="URL", help="The judge's address, http://HOST:PORT/v1; may be repeated."
)
ENDPOINTS = click.option(
    "--endpoints",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="An endpoint file of `rlfactory judge serve`. Default: its usual place.",
)
MODEL = click.option("--model", metavar="ID", help="The served model's id. Default: the only one that is served.")

_COMMANDS = {
    "ask": LazyCommand("rlfactory_judge.commands:ask", "Have one answer judged, and see how."),
    "calibrate": LazyCommand(
        "rlfactory_judge.commands:calibrate", "Measure how far it can be trusted, on labelled answers."
    ),
    "serve": LazyCommand(
        "rlfactory_judge.serving.command:serve", "Start its server, and keep it running until Ctrl-C."
    ),
}
_SAMPLES_TEMPERATURE = 0.7  # for self-consistency, where the judge has a temperature of 0


@click.group("judge", cls=LazyGroup, lazy=_COMMANDS)
def judge() -> None:
    """Serve, measure and query a model judge."""


@click.command("ask")
@URL
@ENDPOINTS
@MODEL
@click.option(
    "--rubric",
    default="correctness",
    metavar="NAME|FILE",
    show_default=True,
    help="One for mode outcome: correctness, helpfulness, or a Jinja file.",
)
@click.option("--prompt", metavar="TEXT|@FILE", required=True, help="The prompt: text, @FILE, or - for standard input.")
@click.option("--answer", metavar="TEXT|@FILE", required=True, help="The answer to judge, likewise.")
@click.option("--truth", metavar="TEXT|@FILE", multiple=True, help="An accepted answer, likewise; may be repeated.")
@click.option("--show-prompt", is_flag=True, help="Also show what the judge is sent.")
@click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
@click.argument("rest", nargs=-1, metavar="[KEY=VALUE]...")
def ask(
    prompt: str,
    answer: str,
    truth: tuple[str, ...],
    show_prompt: bool,
    as_json: bool,
    rest: tuple[str, ...],
    **given: Any,
) -> None:
    """Judge one answer and show the result, to develop a rubric.

    KEY=VALUE sets any of the reward's options, such as low=1, high=5 or max_tokens=4096. The cache is not used. The
    exit code is 0 for any score, 1 if the judge does not reply or its reply cannot be parsed, and 2 if the input cannot
    be used.
    """
    from rlfactory_judge.forms.kinds import ScoreForm
    from rlfactory_judge.rubrics.rubric import Rubric
    from rlfactory_judge.service.service import JudgeService

    checked = reward_options({"retries": 0, **given}, rest).model_copy(update={"cache": "off"})
    if [prompt, answer, *truth].count("-") > 1:
        raise UsageError("Only one text can be read from standard input. Give the others as @FILE.")
    rubric, form = Rubric.load(checked.rubric, "outcome"), ScoreForm(checked.low, checked.high)
    texts = {"prompt": _read(prompt), "answer": _read(answer)}
    question = rubric.question_of_text(**texts, truth=[*map(_read, truth)], form=form)
    reply = asyncio.run(_ask(JudgeService(checked), question))
    prompts = {"system": question.system, "user": question.user} if show_prompt else {}
    value, low, high = reply.values[0], checked.low, checked.high
    if as_json:
        facts = ("text", "reasoning", "prompt_tokens", "sampled_tokens", "endpoint")
        found = {"score": value, "raw": checked.on_scale(value), **{name: getattr(reply, name) for name in facts}}
        echo_json({**found, "seconds": round(reply.seconds, 6), **({"prompt": prompts} if prompts else {})})
        return
    for title, text in (*prompts.items(), ("reasoning", reply.reasoning), ("reply", reply.text)):
        if text:
            click.echo(f"{click.style(title, bold=True)}\n{printable(text.strip())}\n")
    score = f"{value:.3g}  ({checked.on_scale(value):g} on the scale from {low:g} to {high:g})"
    click.echo(f"{click.style('score', bold=True)}  {score}")
    tokens = f"{reply.prompt_tokens} + {reply.sampled_tokens} tokens"
    click.echo(f"{tokens}, {reply.seconds:.2f} s, {reply.endpoint}")


def reward_options(given: Mapping[str, Any], rest: Sequence[str]) -> JudgeOptions:
    """The reward's options from a command's own (those that are given) and from KEY=VALUE; raises `ConfigError`."""
    from rlfactory_core.config.loading import merge, parse_override
    from rlfactory_judge.scoring.factory import read_options

    plain = {key: value for key, value in given.items() if value not in (None, ())}
    return read_options(merge(plain, *map(parse_override, rest)))


async def _ask(service: JudgeService, question: Question) -> Reply:
    try:
        await service.open(None)
        return await service.ask(question)
    finally:
        await service.close()


def _read(text: str) -> str:
    if text == "-":
        return sys.stdin.read()
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"No text can be read from the file {text[1:]}: {error}") from error


@click.command()
@click.option(
    "--labels", metavar="FILE", type=click.Path(path_type=Path), help="A JSONL file of answers that people judged."
)
@URL
@ENDPOINTS
@MODEL
@click.option("--rubric", metavar="NAME|FILE", help="A built-in rubric, or a Jinja file. Default: the mode's own.")
@click.option("--mode", type=click.Choice(get_args(Mode)), default="outcome", show_default=True, help="As in the run.")
@click.option("--samples", type=click.IntRange(min=0), default=0, metavar="K", help="Ask K times, for consistency.")
@click.option("--injections", type=click.IntRange(min=0), help="Texts in each wrong answer. Default: all.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON on standard output.")
@click.argument("rest", nargs=-1, metavar="[KEY=VALUE]...")
def calibrate(
    labels: Path | None,
    samples: int,
    injections: int | None,
    as_json: bool,
    rest: tuple[str, ...],
    **given: Any,
) -> None:
    """Measure a judge on labelled answers: agreement, Cohen's kappa, biases, self-consistency, injected texts.

    Questions are the same as in a run. KEY=VALUE sets any of the reward's options, such as votes=3, threshold=0.7 or
    high=5. Every question is asked anew: no reply comes from a cache. Ctrl-C shows the figures so far.
    """
    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_judge.rubrics.injections import injections as known_injections
    from rlfactory_judge.rubrics.rubric import Rubric, default_rubric
    from rlfactory_judge.service.service import JudgeService
    from rlfactory_judge.trust.calibration import calibration_text, summarise
    from rlfactory_judge.trust.labels import FORMAT, read_labels
    from rlfactory_judge.trust.measuring import Measurement

    options = reward_options(given, rest)
    if labels is None:
        raise UsageError(f"There is nothing to measure the judge on: give --labels FILE.jsonl.\n{FORMAT}")
    rows = read_labels(labels, low=options.low, high=options.high)
    options = options.model_copy(update={"cache": "off"})  # the model that answers now is measured
    whole = True
    measurement = Measurement(
        JudgeService(options),
        options,
        rows,
        rubric=Rubric.load(options.rubric, options.mode),
        pair_rubric=Rubric.load(default_rubric("pairwise"), "pairwise"),
        temperature=options.temperature or _SAMPLES_TEMPERATURE,
        samples=samples,
        injections=() if injections == 0 else known_injections(),
        injections_each=injections or 0,
    )
    try:
        with make_progress(sys.stderr if as_json else sys.stdout) as measurement.progress:
            asyncio.run(_measure(measurement))
    except KeyboardInterrupt:
        if not measurement.judgements:
            raise
        whole = False
    found = summarise(measurement, stopped="" if whole else "stopped by Ctrl-C")
    if as_json:
        echo_json(found.to_dict())
    else:
        echo(f"\n{calibration_text(found)}")
    if not whole:
        raise RunStopped("stopped: these are the figures so far")
    if found.agreement is None or found.agreement.n == 0:
        raise click.exceptions.Exit(1)


async def _measure(measurement: Measurement) -> None:
    """Raises `BackendError` or `UsageError`: the judge does not answer, or the options do not fit it."""
    service = measurement.service
    try:
        await service.open(None, measurement.progress.say)
        measurement.judge = service.describe()
        await measurement.run()
    finally:
        await service.close()
