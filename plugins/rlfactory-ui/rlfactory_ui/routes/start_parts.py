"""The parts of the page of a new run that a command fills, such as the tools that the model will see."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rlfactory_core.errors import MissingExtraError, UsageError
from rlfactory_core.serving import BodyError
from rlfactory_ui.access import FILES
from rlfactory_ui.pages import Form, first, part, posted, site_of
from rlfactory_ui.processes import LAUNCHES
from rlfactory_ui.routes.draft import tool_words, words_of

_SECRET = re.compile("key|token|secret|password|auth", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{\w+\}")


@dataclass(frozen=True, slots=True)
class FilledPart:
    """A part that shows the JSON of a command."""

    command: tuple[str, ...]
    words: Callable[[Form], Iterator[str]]  # after the command
    seconds: float = 60.0


def _data(form: Form) -> Iterator[str]:
    if not first(form, "data"):
        raise UsageError("Name a file with training data first.")
    yield from ("--", first(form, "data"))


def _sample(form: Form) -> Iterator[str]:
    yield from words_of(form)
    if which := first(form, "sample"):
        yield from ("--sample", which)


def _answer(form: Form) -> Iterator[str]:
    yield from _sample(form)
    if answer := first(form, "answer"):
        yield from ("--answer", answer)


def _task(form: Form) -> Iterator[str]:
    if not first(form, "plugin"):
        raise UsageError("Checks are of a plugin's task: choose one above. Try an agent with `rlfactory agents try`.")
    yield first(form, "plugin")
    yield from (word for word in words_of(form) if word.startswith("task.") and "=" in word)


def _call(form: Form) -> Iterator[str]:
    """The arguments as JSON where the form has it, else as NAME=VALUE, which the command reads by the schema."""
    tool = first(form, "tool")
    prefix = f"argument.{tool}."
    named = [f"{name.removeprefix(prefix)}={values[0]}" for name, values in form.items() if name.startswith(prefix)]
    text = first(form, f"arguments.{tool}")
    yield from (tool, *([text] if text else [each for each in named if not each.endswith("=")]))
    yield from tool_words(tuple(words_of(form)))


def _servers(form: Form) -> Iterator[str]:
    yield from tool_words(tuple(words_of(form)))
    yield "--servers"


PARTS = {
    "data": FilledPart(("samples", "rows"), _data),
    "prompt": FilledPart(("samples", "prompt"), _sample, 300.0),  # a task may make its data first
    "score": FilledPart(("samples", "score"), _answer, 300.0),
    "check": FilledPart(("plugins", "check"), _task, 600.0),
    "redteam": FilledPart(("plugins", "redteam"), _task, 600.0),
    "memory": FilledPart(("memory",), words_of, 120.0),
    "call": FilledPart(("tools", "call"), _call),
    "tools": FilledPart(("tools", "list"), _servers, 180.0),  # for all MCP servers to start
}


async def fill(request: Request) -> Response:
    """A part of the page, made of what its command says; the command's error if there is one."""
    form, name = await posted(request), request.path_params["part"]
    if name == "tools" and first(form, "mcp") and not first(form, "start"):
        return _starting(form)
    if name not in PARTS:
        raise HTTPException(404)
    made, commands = PARTS[name], site_of(request).commands
    words = [*made.command, *made.words(form)]
    words.insert(words.index("--") if "--" in words else len(words), "--json")
    outcome = await commands.run(*words, seconds=made.seconds)
    given = {key: values[0] for key, values in form.items()}
    machine = (await commands.run("doctor", "--json")).json()["checks"] if name == "memory" else ()
    return part(f"{name}.jinja", found=outcome.json(), outcome=outcome, given=given, machine=machine)


def _starting(form: Form) -> Response:
    """The names of the MCP servers, whose start takes a while, and what asks for their tools at once."""
    own = ("disabled", "key.tools.overrides.", "argument.", "arguments.")
    kept = [(name, value) for name, values in form.items() if name.startswith(own) for value in values]
    servers: Sequence[str] = _mcp().server_names(Path(first(form, "mcp")))
    return part("starting.jinja", servers=servers, kept=kept)


def _mcp() -> Any:
    try:
        import rlfactory_mcp
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "The client of MCP servers is in the plugin rlfactory-mcp, which is not installed: "
            "python -m pip install rlfactory-mcp"
        ) from error
    return rlfactory_mcp


async def pasted_servers(request: Request) -> Response:
    """Save pasted ``mcpServers`` as a file beside the runs, and return its path; variables stay as they were written.

    Raises:
        MissingExtraError: the plugin that talks to MCP servers is not installed.
        UsageError: it is not such JSON, or holds a secret.
    """
    form = await posted(request)
    servers = _mcp().pasted_servers(first(form, "servers"))
    for server in servers.values():
        _refuse_secrets(server)
    place = site_of(request).catalogue.runs / LAUNCHES / "servers"  # apart from the launches
    place.mkdir(parents=True, exist_ok=True)
    name = "-".join(islice(servers, 3)) or "servers"
    path = place / f"mcp-{''.join(letter if letter.isalnum() or letter in '-_' else '_' for letter in name)}.mcp.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps({"mcpServers": servers}, indent=2) + "\n", encoding="utf-8")
    return PlainTextResponse(str(path))


def _refuse_secrets(server: dict[str, Any]) -> None:
    for section in ("env", "headers"):
        for name, value in (server.get(section) or {}).items():
            if _SECRET.search(name) and not _VARIABLE.search(str(value)):
                raise UsageError(
                    f"{section}.{name} looks like a secret, which would be saved. Write ${{NAME}} instead, and set the "
                    "variable NAME before you start `rlfactory ui`."
                )


async def take_file(request: Request) -> Response:
    """Save data that was chosen or dropped in the form beside the runs, and return its path.

    Raises:
        UsageError: it is no file of data, or cannot be written.
    """
    name = request.query_params.get("name", "")
    if name != Path(name).name or name.startswith(".") or Path(name).suffix.lower() not in (".jsonl", ".parquet"):
        raise UsageError(f"Got the file '{name}', expected data as .jsonl or .parquet.")
    place = site_of(request).catalogue.runs / LAUNCHES / "data" / secrets.token_hex(4) / name  # none is overwritten
    try:
        place.parent.mkdir(parents=True)
        with place.open("wb") as file:
            async for chunk in request.stream():
                file.write(chunk)
    except ClientDisconnect as error:
        shutil.rmtree(place.parent, ignore_errors=True)
        raise BodyError(400, "The browser has gone.") from error
    except OSError as error:
        raise UsageError(f"The file cannot be saved as {place}: {error.strerror}.") from error
    return PlainTextResponse(str(place))


ROUTES = [
    Route("/new/servers", pasted_servers, methods=["POST"]),
    Route(FILES, take_file, methods=["POST"]),
    Route("/new/{part}", fill, methods=["POST"]),
]
