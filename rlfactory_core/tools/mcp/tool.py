"""A tool of an MCP server, as `protocols.Tool`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rlfactory_core.cache import digest
from rlfactory_core.errors import ToolArgumentsError
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.tools.mcp.choosing import ChosenTool
from rlfactory_core.tools.mcp.servers import Servers
from rlfactory_core.types import ToolSpec


class McpTool:
    """Calls go to the servers; their life is the source's business."""

    def __init__(self, chosen: ChosenTool, servers: Servers) -> None:
        server, listed = chosen.server, chosen.listed
        self.spec = ToolSpec(chosen.name, listed.description, listed.parameters)
        self.idempotent = listed.idempotent if server.idempotent is None else server.idempotent
        self.stateful = server.stateful or server.per_trajectory
        self.deadline_s = server.timeout_s
        self.version = digest(
            [
                chosen.identity,
                listed.name,
                json.dumps(listed.parameters, sort_keys=True),
                server.url,
                *(server.command, *server.args),
            ]
        )
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
        """See `protocols.Tool`, and `Connection.call` for what it raises."""
        _check_text(arguments)
        session = await self._session(context) if self._server.per_trajectory else ""
        return await self._servers.call(self._server.name, self._name, arguments, session)

    async def _session(self, context: ToolContext) -> str:
        """The trajectory's own, started at its first call and shared by all tools of the server."""

        async def start() -> str:
            session = await self._servers.start_session(self._server.name)
            context.on_end(lambda: self._servers.end_session(session))
            return session

        return await context.once((self._servers, self._server.name), start)

    async def close(self) -> None:
        """Nothing: the source closes the servers."""


def _check_text(arguments: Mapping[str, Any]) -> None:
    """What the model may write and no server can read: it would not be answered, or end the connection."""
    try:
        json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as error:
        raise ToolArgumentsError("the arguments hold a NaN, an infinity or half a character") from error
