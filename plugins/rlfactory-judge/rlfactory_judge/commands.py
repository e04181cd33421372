"""``rlfactory judge``: serve a judge, measure it, and ask it one question."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.cli.commands import LazyCommand, LazyGroup
from rlfactory_core.cli.output import echo_json
from rlfactory_core.errors import UsageError
from rlfactory_core.utils.display import printable

if TYPE_CHECKING:
    from rlfactory_judge.contract import Question, Reply
    from rlfactory_judge.options import JudgeOptions

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
        "rlfactory_judge.calibrate:calibrate", "Measure how far it can be trusted, on labelled answers."
    ),
    "serve": LazyCommand(
        "rlfactory_judge.serving.command:serve", "Start its server, and keep it running until Ctrl-C."
    ),
}


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
    from rlfactory_judge.forms.score import ScoreForm
    from rlfactory_judge.rubrics.rubric import Rubric

    checked = reward_options({"retries": 0, **given}, rest).model_copy(update={"cache": "off"})
    if [prompt, answer, *truth].count("-") > 1:
        raise UsageError("Only one text can be read from standard input. Give the others as @FILE.")
    question = Rubric.load(checked.rubric, "outcome").question_of_text(
        prompt=_read(prompt),
        answer=_read(answer),
        truth=[*map(_read, truth)],
        form=ScoreForm(checked.low, checked.high),
    )
    reply = asyncio.run(_ask(checked, question))
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


async def _ask(options: JudgeOptions, question: Question) -> Reply:
    from rlfactory_judge.service.service import JudgeService

    service = JudgeService(options)
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
