"""Which of the servers' tools the model gets, and under which names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rlfactory_core.cache import digest
from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.tools.mcp.compat import ListedTool, Listing
from rlfactory_core.tools.mcp.config import ServerConfig

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64  # characters of a tool's name that models' servers take
_MARK = 6  # characters of a digest that tell names apart


@dataclass(frozen=True, slots=True)
class ChosenTool:
    """A server's tool and the name that the model calls it by."""

    name: str
    server: ServerConfig
    identity: str  # of the server, as it names itself
    listed: ListedTool


def choose_tools(
    servers: Sequence[ServerConfig], listings: Mapping[str, Listing], taken: Collection[str]
) -> tuple[ChosenTool, ...]:
    """Filtered, in the servers' order; a name that is taken, or that two servers give, gets ``server_`` before it.

    Raises:
        UsageError: a pattern that matches no tool, or a name that is taken with its prefix too.
    """
    chosen = [tool for server in servers for tool in _of_server(server, listings[server.name])]
    count = Counter(tool.name for tool in chosen)
    named = [
        ChosenTool(valid_name(f"{tool.server.name}_{tool.name}"), tool.server, tool.identity, tool.listed)
        if (count[tool.name] > 1 or tool.name in taken) and not tool.server.prefix
        else tool
        for tool in chosen
    ]
    seen: dict[str, str] = dict.fromkeys(taken, "another tool of the task")
    for tool in named:
        if tool.name in seen:
            raise UsageError(
                f"The tool {tool.name!r} of MCP server {tool.server.name!r} has the name of {seen[tool.name]}. "
                "Set another 'prefix' for the server, or leave the tool out with 'deny'."
            )
        seen[tool.name] = f"a tool of MCP server {tool.server.name!r}"
    return tuple(named)


def valid_name(name: str) -> str:
    """With the characters that models' servers take in a tool's name, and not too long."""
    valid = _NOT_IN_NAMES.sub("_", name)
    return valid if len(valid) <= _LONGEST else f"{valid[: _LONGEST - _MARK - 1]}_{digest([name])[:_MARK]}"


def _of_server(server: ServerConfig, listing: Listing) -> Iterator[ChosenTool]:
    names = [tool.name for tool in listing.tools]
    allowed = set(names) if server.allow is None else _matching(server, "allow", server.allow, names)
    denied = _matching(server, "deny", server.deny, names)
    kept = [tool for tool in listing.tools if tool.name in allowed - denied]
    prefix = f"{server.prefix}_" if server.prefix else ""
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
