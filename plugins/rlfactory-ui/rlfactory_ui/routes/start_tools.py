"""The tools of a new run: MCP servers, schemas as the model sees them, limits, and single calls."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlfactory_core.errors import UsageError
from rlfactory_core.plugins.lazy import Lazy
from rlfactory_core.tools.servers import mcp_plugin
from rlfactory_ui import processes
from rlfactory_ui.pages import part, site_of
from rlfactory_ui.routes.draft import tool_words, words_of
from rlfactory_ui.routes.forms import Form, first, posted

START_S = 180.0  # for all MCP servers
_SECRET = re.compile("key|token|secret|password|auth", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{\w+\}")


async def tools(request: Request) -> Response:
    """The tools as the model will see them, each with its limits and a form to try it, and the servers' states.

    What starts servers takes a while, so that the first answer has their names, and asks for the second at once.
    """
    site, form = site_of(request), await posted(request)
    if (mcp := first(form, "mcp")) and not first(form, "start"):
        mcp_plugin()  # says how to install it
        servers = [{"name": name} for name in Lazy("rlfactory_mcp.source:server_names").load()(Path(mcp))]
        return part("tools.jinja", tools=[], servers=servers, starting=True, kept=_of_tools(form))
    words = tool_words(tuple(words_of(form)))
    outcome = await site.commands.run("tools", "list", *words, "--servers", "--json", seconds=START_S)
    given = {name: values[0] for name, values in form.items()}
    return part("tools.jinja", **outcome.json(), given=given, starting=False)


def _of_tools(form: Form) -> list[tuple[str, str]]:
    """The fields of single tools, which the answer after this one shows again."""
    own = ("disabled", "key.tools.overrides.", "argument.", "arguments.")
    return [(name, value) for name, values in form.items() if name.startswith(own) for value in values]


async def call(request: Request) -> Response:
    """One call by hand."""
    form = await posted(request)
    name = first(form, "tool")
    words = tool_words(tuple(words_of(form)))
    outcome = await site_of(request).commands.run("tools", "call", name, *_arguments(form, name), *words, "--json")
    try:
        result: Any = json.loads(outcome.out)
    except ValueError:
        result = None
    return part("call.jinja", result=result, outcome=outcome)


def _arguments(form: Form, tool: str) -> list[str]:
    """As JSON where it is given, else as NAME=VALUE, whose types the command takes from the schema."""
    if text := first(form, f"arguments.{tool}"):
        return [text]
    prefix = f"argument.{tool}."
    given = {name.removeprefix(prefix): values[0] for name, values in form.items() if name.startswith(prefix)}
    return [f"{name}={value}" for name, value in given.items() if value]


async def pasted_servers(request: Request) -> Response:
    """Save pasted ``mcpServers`` as a file beside the runs, and return its path; variables stay as they were written.

    Raises:
        MissingExtraError: the plugin that talks to MCP servers is not installed.
        UsageError: it is not such JSON, or holds a secret.
    """
    site, form = site_of(request), await posted(request)
    text = first(form, "servers")
    mcp_plugin()
    servers = Lazy("rlfactory_mcp.source:pasted_servers").load()(text)
    for server in servers.values():
        _refuse_secrets(server)
    place = site.catalogue.runs / processes.LAUNCHES / "servers"  # apart from the launches
    place.mkdir(parents=True, exist_ok=True)
    name = "-".join(islice(servers, 3)) or "servers"
    path = place / f"mcp-{''.join(letter if letter.isalnum() or letter in '-_' else '_' for letter in name)}.mcp.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps({"mcpServers": servers}, indent=2) + "\n", encoding="utf-8")
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
    Route("/new/tools", tools, methods=["POST"]),
    Route("/new/call", call, methods=["POST"]),
    Route("/new/servers", pasted_servers, methods=["POST"]),
]
