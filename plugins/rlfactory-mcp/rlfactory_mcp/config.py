"""Reads configurations of MCP servers, such as ``mcpServers`` JSON.

Other programs' keys keep their meaning (`dialects`); ``allow``, ``prefix``, ``session`` and others are added. `expand`
replaces the variables ``${NAME}`` and ``${NAME:-default}`` later, so that a configuration that is only read has no
secrets in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field

from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.settings import Positive, Section, validate_section
from rlfactory_mcp.dialects import EXAMPLE, Entry, entries, in_our_keys, is_disabled
from rlfactory_mcp.files import load
from rlfactory_mcp.placeholders import Filler

Transport = Literal["stdio", "http", "sse", "auto"]

Seconds = Annotated[float, Field(gt=0.0, le=24 * 3600.0)]


class ServerSection(Section):
    """One entry of ``mcpServers``."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    type: Literal["stdio", "http", "sse"] | None = None
    timeout: Seconds | None = None
    """Seconds for one call."""
    start_timeout: Seconds = 60.0
    """Seconds from the start to the list of tools; the first ``npx`` downloads a package."""
    ping_timeout: Seconds = 5.0
    """Seconds in which a server has to answer a ping after a call was cancelled."""
    allow: tuple[str, ...] | None = None
    """The tools to use, as names or shell patterns; none: all of them."""
    deny: tuple[str, ...] = ()
    prefix: bool | str = False
    """The prefix of the tools' names; true: the server's name."""
    session: Literal["shared", "trajectory"] = "shared"
    replicas: Positive = 1
    idempotent: bool | None = None
    """Whether calls may be retried; none: as the server says of each tool."""
    stateful: bool = True
    """Whether results depend on earlier calls, and so are never cached."""


class ServerConfig(ServerSection):
    """One server to be used; it can be pickled and sent as JSON. Its ``repr`` has no values that may be secret."""

    name: str
    hints: tuple[str, ...] = ()
    """What the file says of the server that has no effect here, and may have been meant to."""
    secrets: tuple[str, ...] = ()
    """Values that must not be logged or shown."""

    @property
    def kind(self) -> Transport:
        return "stdio" if self.command else self.type or "auto"

    @property
    def tool_prefix(self) -> str:
        """The prefix of the tools' names, without the underscore that follows it."""
        return (self.name if self.prefix is True else self.prefix or "").rstrip("_")

    @property
    def per_trajectory(self) -> bool:
        return self.session == "trajectory"

    def __repr_args__(self) -> list[tuple[str, str]]:
        return [("name", self.name), ("kind", self.kind)]

    def redact(self, text: str) -> str:
        """The text without the values that came from variables, ``env`` or ``headers``."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def read_servers(config: Path | str | Mapping[str, Any] | Sequence[Any]) -> tuple[ServerConfig, ...]:
    """The servers of a configuration, without the disabled ones.

    Args:
        config: the path of a file (see `files.load`), or its content: a mapping with ``mcpServers``, or a list of such
            mappings.

    Raises:
        ConfigError: the file cannot be read, holds something else, or has an unknown key or a wrong value.
    """
    where = "the MCP configuration"
    if isinstance(config, (str, Path)):
        where = str(config)
        config = load(Path(config).expanduser())
    servers = tuple(_servers(config, where))
    if not servers:
        raise ConfigError(f"{where} names no MCP server that is not disabled.")
    return servers


def _servers(config: Any, where: str) -> Iterator[ServerConfig]:
    seen: set[str] = set()
    for place, part in _parts(config, where):
        for entry in entries(part, place):
            if entry.name in seen:
                raise ConfigError(f"{where} has two MCP servers named {entry.name!r}; give one of them another name.")
            seen.add(entry.name)
            if not is_disabled(entry):
                yield _server(entry)


def _parts(config: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(config, Mapping):
        yield where, config
        return
    if not isinstance(config, Sequence) or isinstance(config, (str, bytes)):
        raise ConfigError(f"{where} holds a {type(config).__name__}; expected {EXAMPLE} or a list of these.")
    for number, item in enumerate(config):
        place = f"{where}, entry {number}"
        if not isinstance(item, Mapping):
            raise ConfigError(f"{place} is {item!r}, expected {{'mcpServers': …}}; only MCP servers are read here.")
        yield place, item


def _server(entry: Entry) -> ServerConfig:
    at = entry.at
    data, hints = in_our_keys(entry)
    section = validate_section(ServerSection, data, prefix=at)
    other, only = ("url", ("headers",)) if section.command else ("command", ("args", "env", "cwd"))
    misplaced = next((key for key in only if getattr(section, key)), None)
    if section.session == "trajectory" and section.replicas > 1:
        problem = "'replicas' is for session: shared; each trajectory has its own server."
    elif bool(section.command) == bool(section.url):
        problem = f"got {'both' if section.command else 'neither'} of 'command' and 'url'; expected one of them."
    elif section.command and section.type not in (None, "stdio"):
        problem = f"a server with a 'command' has the type stdio; got {section.type!r}."
    elif section.url and section.type == "stdio":
        problem = "the type stdio needs a 'command'; got a 'url'."
    elif misplaced:
        problem = f"{misplaced!r} is for a server with a {other!r}."
    else:
        return ServerConfig(name=entry.name, hints=tuple(hints), **dict(section))
    raise ConfigError(f"{at}: {problem}")


_SHORTEST_SECRET = 8  # characters; shorter values are settings, and hiding them would make messages unreadable


def expand(server: ServerConfig, environ: Mapping[str, str]) -> ServerConfig:
    """The server with the variables' values in its command, arguments, environment, folder, address and headers.

    Raises:
        UsageError: a variable is not set and has no default, or a placeholder is one that only another program fills
            in; the message names it, the server and the key.
    """
    filler = Filler(server.name, (server.command, *server.args), environ)
    text = filler.fill
    changes = {
        "command": text("command", server.command),
        "args": tuple(text(f"args[{number}]", item) for number, item in enumerate(server.args)),
        "env": {key: text(f"env.{key}", item) for key, item in server.env.items()},
        "cwd": None if server.cwd is None else text("cwd", server.cwd),
        "url": text("url", server.url),
        "headers": {key: text(f"headers.{key}", item) for key, item in server.headers.items()},
    }
    expanded = server.model_copy(update=changes)
    if filler.problems:
        raise UsageError("\n".join(filler.problems))
    queried = (item for _, item in parse_qsl(urlsplit(expanded.url).query))
    values = {*filler.values, *expanded.env.values(), *expanded.headers.values(), *queried}
    secrets = {item for item in values if len(item) >= _SHORTEST_SECRET and not os.path.exists(item)}
    return expanded.model_copy(update={"secrets": tuple(sorted(secrets, key=len, reverse=True))})
