"""The tools of MCP servers, as a source among a task's tools."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import Tool
from rlfactory_core.tools.mcp.choosing import choose_tools
from rlfactory_core.tools.mcp.compat import require_sdk
from rlfactory_core.tools.mcp.config import read_servers
from rlfactory_core.tools.mcp.meeting import meeting_place
from rlfactory_core.tools.mcp.remote import RemoteServers
from rlfactory_core.tools.mcp.servers import LocalServers, Servers
from rlfactory_core.tools.mcp.tool import McpTool
from rlfactory_core.tools.mcp.variables import expand


class McpSource:
    """A `protocols.ToolSource`: starts the servers of a configuration and gives their tools.

    Args:
        config: see `config.read_servers`; read at once.

    Raises:
        ConfigError: the configuration does not fit.
    """

    def __init__(self, config: Path | str | Mapping[str, Any] | Sequence[Any]) -> None:
        self._configs = read_servers(config)
        self._servers: Servers | None = None

    def __repr__(self) -> str:
        return f"McpSource({', '.join(config.name for config in self._configs)})"

    async def open(self, taken: Collection[str], group: str = "") -> Sequence[Tool]:
        """Start all servers in parallel; the tools in the configuration's order.

        Processes of a group share one set of servers, which a process of its own keeps.

        Raises:
            MissingExtraError: the package mcp is not installed.
            UsageError: an environment variable that is not set, a filter that matches nothing, a name twice, or no
                tool at all.
            BackendError: servers that do not start, with the end of their stderr.
        """
        require_sdk()
        expanded = [expand(config, os.environ) for config in self._configs]
        self._servers = (
            RemoteServers(meeting_place(group, self._configs), expanded) if group else LocalServers(expanded)
        )
        listings = await self._servers.open()
        # What is not expanded names the tools' versions: they hold no secret, and are the same on every machine.
        chosen = choose_tools(self._configs, listings, taken)
        if not chosen:
            raise UsageError(f"None of the MCP servers offers a tool: {', '.join(listings)}.")
        return tuple(McpTool(tool, self._servers) for tool in chosen)

    async def close(self) -> None:
        """End the servers, or leave the group that shares them."""
        servers, self._servers = self._servers, None
        if servers is not None:
            await servers.close()
