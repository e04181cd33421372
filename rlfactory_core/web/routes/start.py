"""A new run on one page: each part is checked by the command that it stands for, and the command is always shown."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rlfactory_core.config.sections import DataColumns, EvalConfig, Section, TrainConfig
from rlfactory_core.errors import UsageError
from rlfactory_core.web import processes
from rlfactory_core.web.commands import Outcome
from rlfactory_core.web.pages import page, part, site_of
from rlfactory_core.web.routes.forms import Form, first, posted

_SECRET = re.compile("key|token|secret|password|auth", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{\w+\}")
CHECK_S = 600.0
_ROWS_SHOWN = 5
_LONGEST_LINE = 2**20  # bytes of a row of data
# Options of the command, in the order of the page: the form's field and its name on the command line.
OPTIONS = (
    "plugin",
    "agent",
    "mcp",
    "data",
    "eval-data",
    "judge",
    "model",
    "engine",
    "device",
    "seed",
    "recipe",
    "config",
)
FIRST_KEYS: dict[str, tuple[type[Section], tuple[str, ...]]] = {  # the keys of the training that matter first
    "train": (TrainConfig, ("steps", "prompts_per_step", "group_size", "lr", "advantage", "aggregation")),
    "eval": (EvalConfig, ("every", "limit")),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One input of the form."""

    name: str
    type: str
    default: str
    doc: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A run as the form describes it."""

    name: str
    words: tuple[str, ...]  # of the task, the data and the training: what `run`, `tools` and the others share
    plugin: str

    @classmethod
    def of(cls, form: Form, runs: Path) -> Draft:
        """
        Raises:
            UsageError: the run's name is no name of a folder.
        """
        plugin = first(form, "plugin")
        agent = Path(shlex.split(first(form, "agent") or "none")[-1]).stem
        name = first(form, "name") or f"{time.strftime('%Y%m%d-%H%M%S')}-{Path(plugin).stem or agent}"
        if name != Path(name).name or name.startswith(".") or (runs / name).exists():
            raise UsageError(f"The run's name: got '{name}', expected the name of a new folder in {runs}.")
        return cls(name, tuple(_words(form)), plugin)

    def command(self, runs: Path, *more: str) -> list[str]:
        return ["run", *self.words, "--out", str(runs / self.name), *more]


def _words(form: Form) -> Iterator[str]:
    for name in OPTIONS:
        if value := first(form, name):
            yield from (f"--{name}", value)
    for line in first(form, "rewards").splitlines():
        if line.strip():
            yield from ("--reward", line.strip())
    for name, values in form.items():
        if name.startswith("key.") and (value := values[0].strip()):
            yield f"{name.removeprefix('key.')}={value}"
    yield from shlex.split(first(form, "keys"))


def _tool_words(words: Sequence[str]) -> list[str]:
    """Those that `rlfactory tools` takes, too."""
    known = ("--plugin", "--mcp", "--config")
    pairs = zip(words, [*words[1:], ""], strict=True)
    taken = [each for word, value in pairs if word in known for each in (word, value)]
    return taken + [word for word in words if "=" in word and word.startswith(("task.", "tools."))]


async def new_run(request: Request) -> Response:
    site = site_of(request)
    known = (await site.commands.run("plugins", "list", "--json")).json()
    fields = [_field(f"{section}.{key}", cls, key) for section, (cls, keys) in FIRST_KEYS.items() for key in keys]
    runs = [entry.name for entry in site.catalogue.entries()][:50]
    start = request.query_params.get("from", "")
    given = {"config": str(site.catalogue.folder(start).config)} if start else dict(request.query_params)
    columns = [_field(f"data.columns.{key}", DataColumns, key) for key in DataColumns.model_fields]
    return page(
        request,
        "new.jinja",
        plugins=known,
        fields=fields,
        columns=columns,
        runs=runs,
        given=given,
        place=site.catalogue.runs,
    )


def _field(name: str, section: type[Section], key: str) -> Field:
    found = section.model_fields[key]
    return Field(f"key.{name}", "", str(found.default), found.description or "")


async def options(request: Request) -> Response:
    """The task's own options, from its ``Config``."""
    plugin = first(await posted(request), "plugin")
    if not plugin:
        return part("options.jinja", task=None, fields=[])
    about = (await site_of(request).commands.run("plugins", "info", plugin, "--json")).json()
    tasks = [item for item in about["gives"] if item["kind"] == "task"]
    if not tasks:
        raise UsageError(f"The plugin {plugin} gives no task. It can be used for its tools, rewards or formats.")
    fields = [
        Field(f"key.task.{item['key']}", item["type"], item["default"], item["doc"]) for item in tasks[0]["options"]
    ]
    return part("options.jinja", task=tasks[0], fields=fields)


async def preview(request: Request) -> Response:
    """The command line and the whole configuration, as ``--dry-run`` gives it, or its error."""
    site, form = site_of(request), await posted(request)
    draft = Draft.of(form, site.catalogue.runs)
    words = draft.command(site.catalogue.runs)
    return part("preview.jinja", command=shlex.join(["rlfactory", *words]), outcome=await _dry(request, words))


async def _dry(request: Request, words: Sequence[str]) -> Outcome:
    return await site_of(request).commands.run(*words, "--dry-run")


async def tools(request: Request) -> Response:
    """The tools as the model will see them, each with a form to try it."""
    site, form = site_of(request), await posted(request)
    words = _tool_words(tuple(_words(form)))
    found = (await site.commands.run("tools", "list", *words, "--json")).json()
    return part("tools.jinja", tools=[item["function"] for item in found])


async def call(request: Request) -> Response:
    """One call by hand."""
    form = await posted(request)
    name, arguments = first(form, "tool"), first(form, f"arguments.{first(form, 'tool')}") or "{}"
    words = _tool_words(tuple(_words(form)))
    outcome = await site_of(request).commands.run("tools", "call", name, arguments, *words, "--json")
    try:
        result: Any = json.loads(outcome.out)
    except ValueError:
        result = None
    return part("call.jinja", result=result, outcome=outcome)


async def data(request: Request) -> Response:
    """The first rows of a file."""
    path = Path(first(await posted(request), "data"))
    rows = await asyncio.to_thread(_first_rows, path)
    names = dict.fromkeys(name for row in rows for name in _columns(row))
    shown = [json.dumps(row, ensure_ascii=False, indent=1) for row in rows]
    return part("rows.jinja", rows=shown, names=list(names), path=path)


def _columns(value: Any, path: str = "") -> Iterator[str]:
    """The names of a row's columns, those within structs with dots."""
    if not isinstance(value, dict):
        yield path
        return
    for name, each in value.items():
        yield from _columns(each, f"{path}.{name}" if path else str(name))


def _first_rows(given: Path) -> list[Any]:
    path = given.expanduser()
    if path.suffix != ".jsonl":
        raise UsageError(f"{path}: only the rows of .jsonl files are shown here; others are read when the run starts.")
    try:
        with path.open("rb") as file:
            lines = [file.readline(_LONGEST_LINE) for _ in range(_ROWS_SHOWN)]
        return [json.loads(line) for line in lines if line.strip()]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"{path}: the first {_ROWS_SHOWN} lines are not all JSON ({error}).") from error


async def check(request: Request) -> Response:
    """``plugins check`` or ``plugins redteam`` of the task with these options."""
    form = await posted(request)
    plugin, which = first(form, "plugin"), request.path_params["which"]
    if not plugin:
        raise UsageError(
            "Checks are of a plugin's task: choose one above. An agent is tried with `rlfactory agents try`."
        )
    own = [word for word in _words(form) if word.startswith("task.") and "=" in word]
    outcome = await site_of(request).commands.run("plugins", which, plugin, *own, "--json", seconds=CHECK_S)
    found = outcome.json() if outcome.out.strip() else {}
    return part("checked.jinja", which=which, found=found, outcome=outcome)


async def begin(request: Request) -> Response:
    """Start the run, unless its configuration is refused.

    Raises:
        UsageError: the command's own error.
    """
    site, form = site_of(request), await posted(request)
    draft = Draft.of(form, site.catalogue.runs)
    words = draft.command(site.catalogue.runs)
    if problem := (await _dry(request, words)).problem:
        raise UsageError(problem)
    processes.start(site.catalogue.runs, draft.name, words)
    return RedirectResponse(f"/runs/{draft.name}", 303)


async def pasted_servers(request: Request) -> Response:
    """Save pasted ``mcpServers`` as a file beside the runs, and return its path; variables stay as they were written.

    Raises:
        UsageError: it is not such JSON.
    """
    site, form = site_of(request), await posted(request)
    text = first(form, "servers")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"The MCP servers are not JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("mcpServers"), dict):
        raise UsageError('The MCP servers: expected JSON with "mcpServers", as other programs have it.')
    for server in found["mcpServers"].values():
        _refuse_secrets(server if isinstance(server, dict) else {})
    place = site.catalogue.runs / processes.LAUNCHES / "servers"  # apart from the launches
    place.mkdir(parents=True, exist_ok=True)
    name = "-".join(islice(found["mcpServers"], 3)) or "servers"
    path = place / f"mcp-{''.join(letter if letter.isalnum() or letter in '-_' else '_' for letter in name)}.mcp.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return Response(str(path), media_type="text/plain")


def _refuse_secrets(server: dict[str, Any]) -> None:
    for section in ("env", "headers"):
        for name, value in (server.get(section) or {}).items():
            if _SECRET.search(name) and not _VARIABLE.search(str(value)):
                raise UsageError(
                    f"{section}.{name} looks like a secret, which would be saved. Write ${{NAME}} instead, and set the "
                    "variable NAME before you start `rlfactory ui`."
                )


ROUTES = [
    Route("/new", new_run),
    Route("/new", begin, methods=["POST"]),
    Route("/new/options", options, methods=["POST"]),
    Route("/new/preview", preview, methods=["POST"]),
    Route("/new/tools", tools, methods=["POST"]),
    Route("/new/call", call, methods=["POST"]),
    Route("/new/data", data, methods=["POST"]),
    Route("/new/servers", pasted_servers, methods=["POST"]),
    Route("/new/checks/{which}", check, methods=["POST"]),
]
