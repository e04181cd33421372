"""Reads configurations of MCP servers: ``mcpServers`` JSON as in Claude Desktop and Qwen-Agent, or RL-Factory's
``.pydata``.

Keys of these clients keep their meaning; ``allow``, ``prefix``, ``session`` and others are added. `expand` replaces the
variables ``${NAME}`` and ``${NAME:-default}`` later, so that a configuration that is only read has no secrets in it.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import BeforeValidator, Field

from rlfactory_core.config import Positive, Section
from rlfactory_core.config.loading import validate_section
from rlfactory_core.errors import ConfigError, UsageError, nearest

Transport = Literal["stdio", "http", "sse", "auto"]

_MEANINGLESS = {"alwaysAllow", "autoApprove", "description", "icon", "name", "sse_read_timeout", "trust", "version"}
_HTTP_NAMES = {"http", "streamablehttp"}  # hyphens and underscores left out
_MAX_TIMEOUT_S = 24 * 3600.0


def _transport(value: Any) -> Any:
    plain = str(value).lower().replace("-", "").replace("_", "")
    return "http" if plain in _HTTP_NAMES else plain if plain in ("stdio", "sse") else value


TransportName = Annotated[Literal["stdio", "http", "sse"], BeforeValidator(_transport)]
Seconds = Annotated[float, Field(gt=0.0, le=_MAX_TIMEOUT_S)]
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


class ServerSection(Section):
    """One entry of ``mcpServers``."""

    command: Text = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: Text = ""
    headers: dict[str, str] = {}
    type: TransportName | None = None
    transport: TransportName | None = None
    """Another name for ``type``."""
    disabled: bool = False
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
    secrets: tuple[str, ...] = ()
    """Values that must not be logged or shown."""

    @property
    def kind(self) -> Transport:
        return "stdio" if self.command else self.type or self.transport or "auto"

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
        config: the path of a JSON file or of a ``.pydata`` file (a Python literal), or its content: a mapping with
            ``mcpServers``, or a list of such mappings.

    Raises:
        ConfigError: the file cannot be read, holds something else, or has an unknown key or a wrong value.
    """
    where = "the MCP configuration"
    if isinstance(config, (str, Path)):
        where = str(config)
        config = _load(Path(config).expanduser())
    sections = dict(_entries(config, where))
    servers = tuple(_server(name, data) for name, data in sections.items() if data.get("disabled") is not True)
    if not servers:
        raise ConfigError(f"{where} names no MCP server that is not disabled.")
    return servers


def _load(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the MCP configuration {path}: {error}.") from error
    try:
        return ast.literal_eval(text.strip()) if path.suffix == ".pydata" else json.loads(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        expected = "a Python literal" if path.suffix == ".pydata" else "JSON"
        raise ConfigError(f"{path} is not {expected}: {error}.") from error


def _entries(config: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each server's name and keys, without keys that have no meaning here."""
    seen: set[str] = set()
    for place, part in _parts(config, where):
        servers = part.get("mcpServers")
        if not isinstance(servers, Mapping):
            raise ConfigError(
                f"{place} has no 'mcpServers' with servers by name. {nearest('mcpServers', map(str, part))}"
            )
        for name, data in servers.items():
            if not isinstance(data, Mapping):
                raise ConfigError(f"mcpServers.{name}: got {data!r}, expected keys such as 'command' or 'url'.")
            if name in seen:
                raise ConfigError(f"{where} has two MCP servers named {name!r}; give one of them another name.")
            seen.add(name)
            yield str(name), {key: value for key, value in data.items() if key not in _MEANINGLESS}


def _parts(config: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(config, Mapping):
        yield where, config
        return
    if not isinstance(config, Sequence) or isinstance(config, (str, bytes)):
        raise ConfigError(
            f"{where} holds a {type(config).__name__}; expected {{'mcpServers': {{…}}}} or a list of these."
        )
    for number, item in enumerate(config):
        place = f"{where}, entry {number}"
        if not isinstance(item, Mapping):
            raise ConfigError(f"{place} is {item!r}, expected {{'mcpServers': …}}; only MCP servers are read here.")
        yield place, item


def _server(name: str, data: Mapping[str, Any]) -> ServerConfig:
    at = f"mcpServers.{name}"
    section = validate_section(ServerSection, data, prefix=at)
    if section.session == "trajectory" and section.replicas > 1:
        raise ConfigError(f"{at}: 'replicas' is for session: shared; each trajectory has its own server.")
    if section.type and section.transport and section.type != section.transport:
        raise ConfigError(f"{at}: 'type' and 'transport' mean the same and differ; leave one out.")
    if bool(section.command) == bool(section.url):
        got = "both" if section.command else "neither"
        raise ConfigError(f"{at}: got {got} of 'command' and 'url'; expected one of them.")
    kind = section.type or section.transport
    if section.command and kind not in (None, "stdio"):
        raise ConfigError(f"{at}: a server with a 'command' has the type stdio; got {kind!r}.")
    if section.url and kind == "stdio":
        raise ConfigError(f"{at}: the type stdio needs a 'command'; got a 'url'.")
    other, only = ("url", ("headers",)) if section.command else ("command", ("args", "env", "cwd"))
    for key in only:
        if getattr(section, key):
            raise ConfigError(f"{at}: {key!r} is for a server with a {other!r}.")
    return ServerConfig(name=name, **dict(section))


_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SHORTEST_SECRET = 8  # characters; shorter values are settings, and hiding them would make messages unreadable


def expand(server: ServerConfig, environ: Mapping[str, str]) -> ServerConfig:
    """The server with the variables' values in its command, arguments, environment, folder, address and headers.

    Raises:
        UsageError: a variable is not set and has no default; the message names it, the server and the key.
    """
    found: set[str] = set()
    missing: list[str] = []

    def value(key: str, name: str, default: str | None) -> str:
        value = environ.get(name)
        if default is not None and not value:
            return default
        if value is None:
            missing.append(
                f"MCP server {server.name!r}: {key} needs the environment variable {name}, which is not set. "
                f"Set it, or write ${{{name}:-default}}."
            )
            return ""
        found.add(value)
        return value

    def text(key: str, text: str) -> str:
        return _VARIABLE.sub(lambda match: value(key, match.group(1), match.group(2)), text)

    changes = {
        "command": text("command", server.command),
        "args": tuple(text(f"args[{number}]", item) for number, item in enumerate(server.args)),
        "env": {key: text(f"env.{key}", item) for key, item in server.env.items()},
        "cwd": None if server.cwd is None else text("cwd", server.cwd),
        "url": text("url", server.url),
        "headers": {key: text(f"headers.{key}", item) for key, item in server.headers.items()},
    }
    expanded = server.model_copy(update=changes)
    if missing:
        raise UsageError("\n".join(missing))
    queried = (item for _, item in parse_qsl(urlsplit(expanded.url).query))
    values = {*found, *expanded.env.values(), *expanded.headers.values(), *queried}
    secrets = {item for item in values if len(item) >= _SHORTEST_SECRET and not os.path.exists(item)}
    return expanded.model_copy(update={"secrets": tuple(sorted(secrets, key=len, reverse=True))})
