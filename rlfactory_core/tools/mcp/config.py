"""Which MCP servers to use: the ``mcpServers`` JSON of Claude Desktop and Qwen-Agent, and RL-Factory's ``.pydata``.

The keys of other clients are read as they are meant there; the keys that are ours (``allow``, ``prefix``, ``session``,
…) stand beside them. Environment variables are put in later, by `variables`, so that no secret stands in here.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from rlfactory_core.config import Positive, Section
from rlfactory_core.config_load import validate_section
from rlfactory_core.errors import ConfigError, nearest

Transport = Literal["stdio", "http", "sse", "auto"]

_MEANINGLESS = {"alwaysAllow", "autoApprove", "description", "icon", "name", "sse_read_timeout", "trust", "version"}
_HTTP_NAMES = {"http", "streamablehttp"}  # hyphens and underscores left out
_MAX_TIMEOUT_S = 24 * 3600.0


def _transport(value: Any) -> Any:
    plain = str(value).lower().replace("-", "").replace("_", "")
    return "http" if plain in _HTTP_NAMES else plain if plain in ("stdio", "sse") else value


TransportName = Annotated[Literal["stdio", "http", "sse"], BeforeValidator(_transport)]
Seconds = Annotated[float, Field(gt=0.0, le=_MAX_TIMEOUT_S)]


class ServerSection(Section):
    """One entry of ``mcpServers``."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    type: TransportName | None = None
    transport: TransportName | None = None  # another name for ``type``
    disabled: bool = False
    timeout: Seconds | None = None  # seconds, of one call
    start_timeout: Seconds = 60.0  # seconds, from start to the list of tools; a first ``npx`` downloads a package
    ping_timeout: Seconds = 5.0  # seconds, for a server to show that it lives after a call that was cut
    allow: tuple[str, ...] | None = None  # names or shell patterns; none: all tools
    deny: tuple[str, ...] = ()
    prefix: bool | str = False  # before the tools' names; true: the server's name
    session: Literal["shared", "trajectory"] = "shared"
    replicas: Positive = 1
    idempotent: bool | None = None  # may be retried; none: as the server says of each tool
    stateful: bool = True  # results are never cached


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server to be used; pickles, and goes over a pipe as JSON.

    What may hold a secret is left out of the ``repr``.
    """

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float | None = None
    start_timeout_s: float = 60.0
    ping_timeout_s: float = 5.0
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    prefix: str = ""  # without the underscore that follows it
    per_trajectory: bool = False
    replicas: int = 1
    idempotent: bool | None = None
    stateful: bool = True
    secrets: tuple[str, ...] = field(default=(), repr=False)  # never to be logged or shown

    def redact(self, text: str) -> str:
        """The text without the values that came from variables, ``env`` or ``headers``."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ServerConfig:
        fields: dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in data.items()}
        return cls(**fields)


def read_servers(config: Path | str | Mapping[str, Any] | Sequence[Any]) -> tuple[ServerConfig, ...]:
    """The servers of a configuration that are not disabled.

    Args:
        config: the path of a JSON file, or of a ``.pydata`` file (a Python literal); or its content: a mapping with
            ``mcpServers``, or a list of such mappings.

    Raises:
        ConfigError: a file that cannot be read, something else than servers, an unknown key, a value that does not fit.
    """
    where = "the MCP configuration"
    if isinstance(config, (str, Path)):
        where = str(config)
        config = _load(Path(config).expanduser())
    sections = dict(_entries(config, where))
    servers = tuple(
        _server(name, validate_section(ServerSection, data, prefix=f"mcpServers.{name}"))
        for name, data in sections.items()
        if data.get("disabled") is not True
    )
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
    """Each server's name and keys, those that mean nothing here left out."""
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
            raise ConfigError(f"{place} is {item!r}, which is no {{'mcpServers': …}}; only MCP servers are read here.")
        yield place, item


def _server(name: str, section: ServerSection) -> ServerConfig:
    transport = _choose_transport(name, section)
    if section.session == "trajectory" and section.replicas > 1:
        raise ConfigError(f"mcpServers.{name}: 'replicas' is for session: shared; each trajectory has its own server.")
    prefix = name if section.prefix is True else section.prefix or ""
    return ServerConfig(
        name=name,
        transport=transport,
        command=section.command or "",
        args=section.args,
        env=section.env,
        cwd=section.cwd,
        url=section.url or "",
        headers=section.headers,
        timeout_s=section.timeout,
        start_timeout_s=section.start_timeout,
        ping_timeout_s=section.ping_timeout,
        allow=section.allow,
        deny=section.deny,
        prefix=prefix.rstrip("_"),
        per_trajectory=section.session == "trajectory",
        replicas=section.replicas,
        idempotent=section.idempotent,
        stateful=section.stateful,
    )


def _choose_transport(name: str, section: ServerSection) -> Transport:
    """From ``type`` where it is given; it has to fit the other keys."""
    at = f"mcpServers.{name}"
    if section.type and section.transport and section.type != section.transport:
        raise ConfigError(f"{at}: 'type' and 'transport' mean the same and differ; leave one out.")
    if (section.command is None) == (section.url is None):
        got = "neither" if section.command is None else "both"
        raise ConfigError(f"{at}: got {got} of 'command' and 'url'; expected one of them.")
    kind = section.type or section.transport
    if section.command is not None:
        if kind not in (None, "stdio"):
            raise ConfigError(f"{at}: a server with a 'command' has the type stdio; got {kind!r}.")
        if section.headers:
            raise ConfigError(f"{at}: 'headers' is for a server with a 'url'.")
        return "stdio"
    if kind == "stdio":
        raise ConfigError(f"{at}: the type stdio needs a 'command'; got a 'url'.")
    wrong = next((key for key in ("args", "env", "cwd") if getattr(section, key)), None)
    if wrong:
        raise ConfigError(f"{at}: {wrong!r} is for a server with a 'command'.")
    return kind or "auto"
