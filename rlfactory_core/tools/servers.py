"""The MCP servers of a configuration (`tools.mcp`). The plugin rlfactory-mcp talks to them.

The functions here raise a `MissingExtraError` if it is not installed, and a `ConfigError` for a configuration that does
not fit.
"""

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
    """The plugin that talks to MCP servers."""
    return separate_plugin("mcp", "The client of MCP servers")


def _source(name: str) -> Any:
    mcp_plugin()
    return Lazy(f"rlfactory_mcp.source:{name}").load()


def server_tools(servers: Servers) -> ToolSource:
    """The servers as a source of tools, not yet started."""
    source: ToolSource = _source("McpSource")(servers)
    return source


def check_servers(servers: Servers) -> None:
    """Check a configuration without starting a server; a `UsageError` for an environment variable that is not set."""
    _source("check_servers")(servers)


async def try_servers(servers: Servers, taken: Collection[str]) -> tuple[Sequence[Tool], Sequence[ServerState]]:
    """Start each server alone and end it; the tools of those that start, which cannot be called, and all states.

    Args:
        taken: names that the tools may not have.

    Raises:
        UsageError: two tools have one name.
    """
    found: tuple[Sequence[Tool], Sequence[ServerState]] = await _source("try_servers")(servers, taken)
    return found
