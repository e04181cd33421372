"""The MCP servers of a configuration (`tools.mcp`). The plugin rlfactory-mcp talks to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.plugins.discovery import separate_plugin
from rlfactory_core.plugins.lazy import Lazy
from rlfactory_core.protocols import Tool, ToolSource

Servers = Path | Mapping[str, Any]
"""A file with ``mcpServers``, or its content."""

_SOURCE = Lazy("rlfactory_mcp.source:McpSource")
_NAMES = Lazy("rlfactory_mcp.source:server_names")
_CHECK = Lazy("rlfactory_mcp.source:check_servers")
_TRY = Lazy("rlfactory_mcp.source:try_servers")


class ServerTool(ABC):
    """The base class of a tool of an MCP server, beside `protocols.Tool`."""

    @property
    @abstractmethod
    def server(self) -> str:
        """The server's name in the configuration."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """How one server of a configuration has started."""

    name: str
    problem: str = ""  # why it offers nothing; empty: it is ready


def mcp_plugin() -> str:
    """The plugin that talks to MCP servers.

    Raises:
        MissingExtraError: it is not installed.
    """
    return separate_plugin("mcp", "The client of MCP servers")


def server_tools(servers: Servers) -> ToolSource:
    """The servers as a source of tools, not yet started.

    Raises:
        MissingExtraError: the plugin is not installed.
        ConfigError: the configuration does not fit.
    """
    mcp_plugin()
    source: ToolSource = _SOURCE(servers)
    return source


def server_names(servers: Servers) -> Sequence[str]:
    """The servers' names, from a configuration that is only read.

    Raises:
        MissingExtraError: the plugin is not installed.
        ConfigError: the configuration does not fit.
    """
    mcp_plugin()
    names: Sequence[str] = _NAMES(servers)
    return names


def check_servers(servers: Servers) -> None:
    """Check a configuration without starting a server.

    Raises:
        MissingExtraError: the plugin, or the package mcp, is not installed.
        ConfigError: the configuration does not fit.
        UsageError: an environment variable is not set.
    """
    mcp_plugin()
    _CHECK(servers)


async def try_servers(servers: Servers, taken: Collection[str]) -> tuple[Sequence[Tool], Sequence[ServerState]]:
    """Start each server alone and end it; the tools of those that start, which cannot be called, and all states.

    Args:
        taken: names that the tools may not have.

    Raises:
        MissingExtraError, ConfigError: as `check_servers`.
        UsageError: two tools have one name.
    """
    mcp_plugin()
    found: tuple[Sequence[Tool], Sequence[ServerState]] = await _TRY(servers, taken)
    return found
