"""Environment variables in a server's configuration: ``${NAME}`` and ``${NAME:-default}``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

from rlfactory_core.errors import UsageError
from rlfactory_core.tools.mcp.config import ServerConfig

_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SHORTEST_SECRET = 8  # characters; shorter values are settings, and to blank them would garble what people read


def expand(server: ServerConfig, environ: Mapping[str, str]) -> ServerConfig:
    """The server with the variables' values in its command, arguments, environment, folder, address and headers.

    Raises:
        UsageError: a variable that is not set and has no default; the message names it, the server and the key.
    """
    expansion = _Expansion(server.name, environ)
    expanded = replace(
        server,
        command=expansion.text("command", server.command),
        args=tuple(expansion.text(f"args[{number}]", item) for number, item in enumerate(server.args)),
        env={key: expansion.text(f"env.{key}", value) for key, value in server.env.items()},
        cwd=None if server.cwd is None else expansion.text("cwd", server.cwd),
        url=expansion.text("url", server.url),
        headers={key: expansion.text(f"headers.{key}", value) for key, value in server.headers.items()},
    )
    if expansion.missing:
        raise UsageError("\n".join(expansion.missing))
    queried = (value for _, value in parse_qsl(urlsplit(expanded.url).query))
    values = {*expansion.values, *expanded.env.values(), *expanded.headers.values(), *queried}
    secrets = {value for value in values if len(value) >= _SHORTEST_SECRET and not os.path.exists(value)}
    return replace(expanded, secrets=tuple(sorted(secrets, key=len, reverse=True)))


class _Expansion:
    """Puts values in and remembers them, and what was missing."""

    def __init__(self, server: str, environ: Mapping[str, str]) -> None:
        self._server, self._environ = server, environ
        self.values: set[str] = set()
        self.missing: list[str] = []

    def text(self, key: str, text: str) -> str:
        return _VARIABLE.sub(lambda match: self._value(key, match.group(1), match.group(2)), text)

    def _value(self, key: str, name: str, default: str | None) -> str:
        value = self._environ.get(name)
        if default is not None and not value:
            return default
        if value is None:
            self.missing.append(
                f"MCP server {self._server!r}: {key} needs the environment variable {name}, which is not set. "
                f"Set it, or write ${{{name}:-default}}."
            )
            return ""
        self.values.add(value)
        return value
