"""MCP servers as a source of tools: selects the tools that the model gets, names them, and calls them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rlfactory_core import ToolContext
from rlfactory_core.cache import digest
from rlfactory_core.errors import BackendError, ConfigError, ToolArgumentsError, UsageError, nearest
from rlfactory_core.protocols import Tool
from rlfactory_core.tools import ServerState, ServerTool
from rlfactory_core.types import ToolSpec
from rlfactory_mcp.compat import ListedTool, Listing, require_sdk
from rlfactory_mcp.config import ServerConfig, expand, read_servers
from rlfactory_mcp.dialects import entries, in_our_keys, is_disabled
from rlfactory_mcp.files import parse_json
from rlfactory_mcp.servers import LocalServers
from rlfactory_mcp.sharing.client import RemoteServers
from rlfactory_mcp.sharing.rendezvous import meeting_place

_log = logging.getLogger(__name__)

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64  # most characters of a tool's name that models' servers accept
_MARK = 6  # characters of a digest that make shortened names differ


class McpSource:
    """A `protocols.ToolSource` that starts the servers of a configuration and offers their tools.

    Args:
        config: see `config.read_servers`; it is read at once.

    Raises:
        ConfigError: the configuration does not fit.
    """

    def __init__(self, config: Path | str | Mapping[str, Any] | Sequence[Any]) -> None:
        self._configs = read_servers(config)
        self._servers: LocalServers | RemoteServers | None = None

    def __repr__(self) -> str:
        return f"McpSource({', '.join(config.name for config in self._configs)})"

    async def open(self, taken: Collection[str], group: str = "") -> Sequence[Tool]:
        """Start all servers in parallel; the tools in the configuration's order.

        Processes of a group share one set of servers, which a daemon owns.

        Raises:
            MissingExtraError: the package mcp is not installed.
            UsageError: an environment variable is not set, a filter matches nothing, a name occurs twice, or there is
                no tool at all.
            BackendError: servers do not start; the message has the end of their stderr.
        """
        require_sdk()
        expanded = [expand(config, os.environ) for config in self._configs]
        self._servers = (
            RemoteServers(meeting_place(group, self._configs), expanded) if group else LocalServers(expanded)
        )
        listings = await self._servers.open()
        # Versions come from the configuration before expansion: without secrets, and the same on every machine.
        chosen = choose_tools(self._configs, listings, taken)
        if not chosen:
            raise UsageError(_no_tools(listings))
        return tuple(McpTool(tool, self._servers) for tool in chosen)

    async def close(self) -> None:
        """End the servers, or disconnect from the daemon that owns them."""
        servers, self._servers = self._servers, None
        if servers is not None:
            await servers.close()


def server_names(config: Path | str | Mapping[str, Any]) -> Sequence[str]:
    """Their names, from a configuration that is only read; `rlfactory ui` shows them."""
    return [server.name for server in read_servers(config)]


def pasted_servers(text: str) -> Mapping[str, Mapping[str, Any]]:
    """The servers in a text that a user pasted, by name and in our keys; variables stay as they were written.

    Raises:
        ConfigError: it is no configuration of MCP servers.
    """
    try:
        found = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The MCP servers are not JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise ConfigError('The MCP servers: expected JSON with "mcpServers", as other programs have it.')
    listed = list(entries(found, "The text"))
    return {each.name: {"disabled": True} if is_disabled(each) else in_our_keys(each)[0] for each in listed}


def check_servers(config: Path | str | Mapping[str, Any]) -> None:
    """Check a configuration without starting a server; a `UsageError` for an environment variable that is not set."""
    require_sdk()
    for server in read_servers(config):
        expand(server, os.environ)
        for hint in server.hints:
            _log.warning("%s", hint)


async def try_servers(
    config: Path | str | Mapping[str, Any], taken: Collection[str]
) -> tuple[Sequence[McpTool], Sequence[ServerState]]:
    """Start each server alone and end it; the tools of those that start, which cannot be called, and all states.

    Args:
        taken: names that the tools may not have.

    Raises:
        ConfigError: the configuration does not fit.
        MissingExtraError: the package mcp is not installed.
        UsageError: two tools have one name.
    """
    require_sdk()
    servers = read_servers(config)
    found = await asyncio.gather(*map(_try, servers))
    listings = {server.name: each for server, each in zip(servers, found, strict=True) if isinstance(each, Listing)}
    chosen = choose_tools([server for server in servers if server.name in listings], listings, taken)
    problems = [each if isinstance(each, str) else "" for each in found]
    states = [ServerState(server.name, problem) for server, problem in zip(servers, problems, strict=True)]
    return [McpTool(tool, LocalServers(())) for tool in chosen], states


async def _try(config: ServerConfig) -> Listing | str:
    """What the server offers, or why not."""
    try:
        servers = LocalServers([expand(config, os.environ)])
        try:
            listings = await servers.open()
        finally:
            await servers.close()
        if not choose_tools([config], listings, ()):
            return _no_tools(listings)
    except (UsageError, BackendError) as error:
        return str(error)
    return listings[config.name]


def _no_tools(listings: Mapping[str, Listing]) -> str:
    said = [f"{name}: {problem}" for name, listing in listings.items() for problem in listing.problems]
    return "\n".join([f"None of the MCP servers offers a tool: {', '.join(listings)}.", *said])


class McpTool(ServerTool):
    """A tool of an MCP server; the source opens and closes the server."""

    def __init__(self, chosen: ChosenTool, servers: LocalServers | RemoteServers) -> None:
        server, listed = chosen.server, chosen.listed
        self.spec = ToolSpec(chosen.name, listed.description, listed.parameters)
        self.idempotent = listed.idempotent if server.idempotent is None else server.idempotent
        self.stateful = server.stateful or server.per_trajectory
        self.deadline_s = server.timeout
        place = json.dumps([server.env, server.cwd, server.headers], sort_keys=True)  # another database, another user
        schema = json.dumps(listed.parameters, sort_keys=True)
        self.version = digest([chosen.identity, listed.name, schema, server.url, server.command, *server.args, place])
        self._server = server
        self._name = listed.name
        self._servers = servers

    @property
    def server(self) -> str:
        """The server's name in the configuration."""
        return self._server.name

    def __repr__(self) -> str:
        return f"<tool {self.spec.name} of MCP server {self.server}>"

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Make the call; see `Connection.call` for what it raises."""
        _check_text(arguments)
        session = await self._session(context) if self._server.per_trajectory else ""
        return await self._servers.call(self._server.name, self._name, arguments, session)

    async def _session(self, context: ToolContext) -> str:
        """The trajectory's session, started at its first call and shared by all tools of the server."""

        async def start() -> str:
            session = await self._servers.start_session(self._server.name)
            context.on_end(lambda: self._servers.end_session(session))
            return session

        return await context.once((self._servers, self._server.name), start)

    async def close(self) -> None:
        """Nothing to do: the source closes the servers."""


def _check_text(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that cannot be sent as JSON: a server would not answer, or end the connection."""
    try:
        json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as error:
        raise ToolArgumentsError("the arguments hold a NaN, an infinity or half a character") from error


@dataclass(frozen=True, slots=True)
class ChosenTool:
    """A server's tool and its name for the model."""

    name: str
    server: ServerConfig
    identity: str  # the server's own name and version
    listed: ListedTool


def choose_tools(
    servers: Sequence[ServerConfig], listings: Mapping[str, Listing], taken: Collection[str]
) -> tuple[ChosenTool, ...]:
    """The allowed tools, in the servers' order; names that are taken or not unique get the prefix ``server_``.

    Raises:
        UsageError: a pattern matches no tool, or a name is taken even with its prefix.
    """
    chosen = [tool for server in servers for tool in _of_server(server, listings[server.name])]
    count = Counter(tool.name for tool in chosen)
    named: list[ChosenTool] = []
    seen: dict[str, str] = dict.fromkeys(taken, "another tool of the task")
    for each in chosen:
        clashes = (count[each.name] > 1 or each.name in taken) and not each.server.tool_prefix
        tool = replace(each, name=valid_name(f"{each.server.name}_{each.name}")) if clashes else each
        named.append(tool)
        if tool.name in seen:
            raise UsageError(
                f"The tool {tool.name!r} of MCP server {tool.server.name!r} has the name of {seen[tool.name]}. "
                "Set another 'prefix' for the server, or leave the tool out with 'deny'."
            )
        seen[tool.name] = f"a tool of MCP server {tool.server.name!r}"
    return tuple(named)


def valid_name(name: str) -> str:
    """The name, changed to characters and a length that models' servers accept for a tool."""
    valid = _NOT_IN_NAMES.sub("_", name)
    return valid if len(valid) <= _LONGEST else f"{valid[: _LONGEST - _MARK - 1]}_{digest([name])[:_MARK]}"


def _of_server(server: ServerConfig, listing: Listing) -> Iterator[ChosenTool]:
    names = [tool.name for tool in listing.tools]
    allowed = set(names) if server.allow is None else _matching(server, "allow", server.allow, names)
    denied = _matching(server, "deny", server.deny, names)
    kept = [tool for tool in listing.tools if tool.name in allowed - denied]
    prefix = f"{server.tool_prefix}_" if server.tool_prefix else ""
    count = Counter(valid_name(prefix + tool.name) for tool in kept)
    for tool in kept:
        name = valid_name(prefix + tool.name)
        if count[name] > 1:  # names that differ only in characters that are not valid
            name = valid_name(f"{name[: _LONGEST - _MARK - 1]}_{digest([tool.name])[:_MARK]}")
        yield ChosenTool(name, server, listing.identity, tool)


def _matching(server: ServerConfig, key: str, patterns: Sequence[str], names: Sequence[str]) -> set[str]:
    matching: set[str] = set()
    for pattern in patterns:
        found = {name for name in names if fnmatchcase(name, pattern)}
        if not found:
            raise UsageError(
                f"mcpServers.{server.name}.{key}: {pattern!r} matches no tool of the server. {nearest(pattern, names)}"
            )
        matching |= found
    return matching
