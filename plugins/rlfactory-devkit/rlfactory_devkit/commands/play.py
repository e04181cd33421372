"""``rlfactory play``: talk to a model with a task's tools, turn by turn, and change what it said."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.cli.options import JSON, PLACES, REST, SETTINGS, nested, run_options, task_options
from rlfactory_core.cli.output import echo
from rlfactory_core.errors import RlfactoryError, UsageError

if TYPE_CHECKING:
    from rlfactory_devkit.conversation import Conversation

ORDERS = """\
  an empty line  the model says its next turn, and the calls in it are made
  go             so on until the end
  again [T]      draw the last turn anew, at temperature T (default: 1)
  back N         go back to before turn N
  edit N [TEXT]  turn N becomes TEXT, and what came after it goes; without TEXT in your editor
  ask TEXT       a question of your own
  say TEXT       one more question after the end
  sample [ID]    another held-out sample
  save           add the conversation to the file of demonstrations
  quit           as Ctrl-D does"""
_TEXTS = ("ask", "say")  # orders whose argument is the rest of the line
_GOING_ON = ("step", "go", "again")  # orders after which the turns before are as they were


@click.command(context_settings=SETTINGS)
@click.argument("run", required=False)
@click.option("--plugin", metavar="NAME|FILE.py", help="The task. Default: that of the run.")
@click.option("--model", metavar="MODEL", help="As of `run`; with --api a served model's id.")
@click.option("--api", metavar="URL", help="An OpenAI-compatible server, such as http://127.0.0.1:8000/v1.")
@click.option("--data", type=click.Path(path_type=Path), help="Held-out data of your own: JSONL or parquet.")
@run_options
@click.option("--device", help="auto, cpu, cuda or cuda:N.")
@click.option("--state", type=click.Path(path_type=Path), help="Keep the conversation in this file, and go on with it.")
@click.option(
    "--demonstrations", type=click.Path(path_type=Path), help="Where `save` adds. Default: RUN/demonstrations.jsonl."
)
@JSON
@REST
def play(
    run: str | None,
    plugin: str | None,
    model: str | None,
    api: str | None,
    state: Path | None,
    demonstrations: Path | None,
    as_json: bool,
    rest: tuple[str, ...],
    **options: Any,
) -> None:
    """Talk to a model with a task's tools, turn by turn: RUN's checkpoint, a model, or an endpoint.

    You can go back, change what the model said and let it go on from there, ask your own questions, and save what
    happened as a demonstration. With --json, each line of standard input is an order, such as {"do": "edit", "turn": 1,
    "text": "…"}, and each line of standard output the conversation after it.
    """
    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_core.runner import ModelChoice
    from rlfactory_devkit.conversation import converse

    words = [*([run] if run and "=" in run else []), *rest]  # KEY=VALUE can come first, where there is no run
    run = None if run and "=" in run else run
    if run and model and not api:
        raise UsageError(f"Got the run {run} and --model {model}: expected one of the two.")
    chosen = ModelChoice(plugin, run or model, api, options.pop("file"), options.pop("judge"), options.pop("recipe"))
    overrides: list[str | Mapping[str, Any]] = [
        nested(options, PLACES | {"data": ("data", "eval")}),
        *task_options(words),
    ]
    with make_progress(sys.stderr) as progress:
        converse(chosen, overrides, progress, state, demonstrations, _by_json if as_json else _by_hand)


async def _by_json(conversation: Conversation) -> None:
    _write(conversation)
    async for line in _lines():
        try:
            try:
                order = json.loads(line)
            except ValueError as error:
                raise UsageError(f"{line.strip()!r:.100} is not JSON: {error}.") from None
            if not isinstance(order, dict):
                raise UsageError(f'{line.strip()!r:.100}: expected an object such as {{"do": "step"}}.')
            await conversation.do(order)
            _write(conversation)
        except RlfactoryError as error:
            _write(conversation, str(error))


def _write(conversation: Conversation, problem: str = "") -> None:
    click.echo(json.dumps({**conversation.view(), "problem": problem}))  # ASCII, one line


async def _by_hand(conversation: Conversation) -> None:
    echo(f"{ORDERS}\n")
    _show(conversation)
    click.echo("> ", nl=False)
    async for line in _lines():
        if line.strip() == "quit":
            return
        try:
            order = _read(line, conversation)
            before = len(conversation.turns())
            await conversation.do(order)
            if order["do"] == "save":
                echo("saved")
            elif order["do"] in _GOING_ON:
                _show(conversation, before - (order["do"] == "again"))
            else:
                _show(conversation)
        except RlfactoryError as error:
            echo(str(error))
        click.echo("> ", nl=False)
    echo()


def _read(line: str, conversation: Conversation) -> dict[str, Any]:
    """An order as it is written by hand."""
    name, _, given = line.strip().partition(" ")
    given = given.strip()
    if name == "edit":
        turn, _, text = given.partition(" ")
        number = _number(turn, int)
        return {"do": name, "turn": number, "text": text or _edited(conversation, number)}
    if name == "back":
        return {"do": name, "turn": _number(given, int)}
    order: dict[str, Any] = {"do": name or "step"}
    if name in _TEXTS:
        order["text"] = given
    elif name == "sample" and given:
        order["sample"] = given
    elif given:
        order["temperature"] = _number(given, float)
    return order


def _number(text: str, kind: type[int | float]) -> float:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"Got '{text}', expected a number.") from None


def _edited(conversation: Conversation, turn: float) -> str:
    texts = {number: turn.text for number, turn in enumerate(conversation.turns(), 1)}
    new = click.edit(texts.get(int(turn), ""))
    if new is None:
        raise UsageError("The turn is as it was.")
    return new.rstrip("\n")


def _show(conversation: Conversation, since: int | None = None) -> None:
    """Write the turns after the first ``since`` ones; None: all, with the question."""
    if since is None:
        name = "your question" if conversation.own else conversation.question.id
        for message in conversation.prompt:
            if message.role == "user":
                echo(f"[{name}] {message.content}")
    for number, turn in list(enumerate(conversation.turns(), 1))[since or 0 :]:
        echo(f"{number}{' (yours)' if turn.edited else ''}  {turn.text}")
        for result in turn.step.results:
            fault = f", {result.fault.value} fault" if result.fault else ""
            echo(f"   {result.name}, {1000 * result.latency_s:.0f} ms{fault}:  {result.content}")
        for message in () if turn.step.results else turn.step.messages:
            echo(f"   {message.content}")
    if conversation.ended is not None:
        view = conversation.view()
        parts = [f"the end: {view['stop'].replace('_', ' ')}"]
        if view["reward"] is not None:
            parts += [f"reward {view['reward']:.3g}"]
            parts += [f"{name} {value:.3g}" for name, value in view["components"].items()]
        echo("\n".join([", ".join(parts), *view["faults"]]))


async def _lines() -> AsyncIterator[str]:
    """The lines of standard input, read without a thread, which Ctrl-C could not end."""
    source, rest = sys.stdin.fileno(), b""
    loop = asyncio.get_running_loop()
    while True:
        ready = asyncio.Event()
        try:
            loop.add_reader(source, ready.set)
        except PermissionError:  # a file, which is always ready
            ready.set()
        try:
            await ready.wait()
        finally:
            loop.remove_reader(source)
        given = os.read(source, 2**16)
        *lines, rest = (rest + given).split(b"\n")
        for line in [*lines, rest] if rest and not given else lines:
            yield line.decode(errors="replace")
        if not given:
            return
