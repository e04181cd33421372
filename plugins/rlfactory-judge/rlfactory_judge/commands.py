"""``rlfactory judge``: measure a judge, and ask it one question."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.errors import UsageError
from rlfactory_core.utils.display import printable
from rlfactory_judge.options import Mode

if TYPE_CHECKING:
    from rlfactory_judge.options import JudgeOptions
    from rlfactory_judge.service.service import JudgeService

T = TypeVar("T")

URL = click.option(
    "--url", metavar="URL", help="The judge's address. Default: http://127.0.0.1:8000/v1, as of `vllm serve`."
)
MODEL = click.option("--model", metavar="ID", help="The served model's id. Default: the only one that is served.")


@click.group("judge")
def judge() -> None:
    """Measure and query a model judge."""


@judge.command(context_settings={"show_default": True}, short_help="Have one answer judged, and see how.")
@URL
@MODEL
@click.option("--rubric", default="correctness", metavar="NAME|FILE", help="One for mode outcome, or a Jinja file.")
@click.option("--prompt", metavar="TEXT|@FILE", required=True, help="The prompt, as text or @FILE.")
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
    from rlfactory_judge.forms import ScoreForm
    from rlfactory_judge.rubrics.rubric import Rubric
    from rlfactory_judge.service.service import JudgeService

    checked = reward_options({"retries": 0, **given}, rest).model_copy(update={"cache": "off"})
    rubric, form = Rubric.load(checked.rubric, "outcome"), ScoreForm(checked.low, checked.high)
    texts = {"prompt": _read(prompt), "answer": _read(answer)}
    question = rubric.question_of_text(**texts, truth=[*map(_read, truth)], form=form)
    service = JudgeService(checked)
    reply = asyncio.run(_opened(service, lambda: service.ask(question)))
    prompts = {"system": question.system, "user": question.user} if show_prompt else {}
    value, low, high = reply.values[0], checked.low, checked.high
    if as_json:
        facts = ("text", "reasoning", "prompt_tokens", "sampled_tokens", "endpoint", "clamped")
        found = {"score": value, "raw": checked.on_scale(value), **{name: getattr(reply, name) for name in facts}}
        echo_json({**found, "seconds": round(reply.seconds, 6), **({"prompt": prompts} if prompts else {})})
        return
    for title, text in (*prompts.items(), ("reasoning", reply.reasoning), ("reply", reply.text)):
        if text:
            click.echo(f"{click.style(title, bold=True)}\n{printable(text.strip())}\n")
    beyond = "; the reply's number is outside it" if reply.clamped else ""
    score = f"{value:.3g}  ({checked.on_scale(value):g} on the scale from {low:g} to {high:g}{beyond})"
    click.echo(f"{click.style('score', bold=True)}  {score}")
    tokens = f"{reply.prompt_tokens} + {reply.sampled_tokens} tokens"
    click.echo(f"{tokens}, {reply.seconds:.2f} s, {reply.endpoint}")


def reward_options(given: Mapping[str, Any], rest: Sequence[str]) -> JudgeOptions:
    """The reward's options from a command's own (those that are given) and from KEY=VALUE; raises `ConfigError`."""
    from rlfactory_core.settings import merge, parse_override
    from rlfactory_judge.scoring.factory import read_options

    plain = {key: value for key, value in given.items() if value not in (None, ())}
    return read_options(merge(plain, *map(parse_override, rest)))


async def _opened(service: JudgeService, work: Callable[[], Awaitable[T]]) -> T:
    """The result of some work while the service is open; raises as `JudgeService.open` and the work."""
    try:
        await service.open()
        return await work()
    finally:
        await service.close()


def _read(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"No text can be read from the file {text[1:]}: {error}") from error


@judge.command(short_help="Measure how far it can be trusted, on labelled answers.")
@click.option(
    "--labels", metavar="FILE", type=click.Path(path_type=Path), help="A JSONL file of answers that people judged."
)
@URL
@MODEL
@click.option("--rubric", metavar="NAME|FILE", help="A built-in rubric, or a Jinja file. Default: the mode's own.")
@click.option("--mode", type=click.Choice(get_args(Mode)), default="outcome", show_default=True, help="As in the run.")
@click.option("--injections", type=click.IntRange(min=0), help="Texts in each wrong answer. Default: all.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON on standard output.")
@click.argument("rest", nargs=-1, metavar="[KEY=VALUE]...")
def calibrate(labels: Path | None, injections: int | None, as_json: bool, rest: tuple[str, ...], **given: Any) -> None:
    """Measure a judge on labelled answers: agreement, Cohen's kappa, biases, injected texts.

    Questions are the same as in a run. KEY=VALUE sets any of the reward's options, such as votes=3, threshold=0.7 or
    high=5. Every question is asked anew: no reply comes from a cache.
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
    measurement = Measurement(
        JudgeService(options),
        options,
        rows,
        rubric=Rubric.load(options.rubric, options.mode),
        pair_rubric=Rubric.load(default_rubric("pairwise"), "pairwise"),
        injections=() if injections == 0 else known_injections(),
        injections_each=injections or 0,
    )
    with make_progress(sys.stderr if as_json else sys.stdout) as measurement.progress:
        asyncio.run(_opened(measurement.service, measurement.run))
    found = summarise(measurement)
    if as_json:
        echo_json(found.to_dict())
    else:
        echo(f"\n{calibration_text(found)}")
    if found.agreement is None or found.agreement.n == 0:
        raise click.exceptions.Exit(1)
