"""All servers of a configuration behind one small interface, so that a tool does not know in which process they run."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from rlfactory_core.cores import usable_cores
from rlfactory_core.errors import BackendError, ToolUnavailableError
from rlfactory_core.tools.mcp.compat import Listing
from rlfactory_core.tools.mcp.config import ServerConfig
from rlfactory_core.tools.mcp.connection import Connection
from rlfactory_core.tools.mcp.pool import Pool

_STARTS_PER_CORE = 2  # servers that start at once: more only make each other late


class Servers(Protocol):
    """Servers are named as in the configuration, tools as the servers name them."""

    async def open(self) -> Mapping[str, Listing]:
        """Start them all, in parallel; what each offers, by server.

        Raises:
            BackendError: some do not start, with the words of each of them.
        """
        ...

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], session: str = "") -> str:
        """The text that the tool answers; see `Connection.call` for what it raises.

        Args:
            session: of `start_session`, for a server that has one for each trajectory.
        """
        ...

    async def start_session(self, server: str) -> str:
        """A connection of its own; gives it a name.

        Raises:
            ToolUnavailableError: it does not start.
        """
        ...

    async def end_session(self, session: str) -> None:
        """Unknown names are ignored."""
        ...

    async def close(self) -> None:
        """Also after a failed `open`; bounded in time."""
        ...


class LocalServers:
    """`Servers` in this process and event loop.

    Args:
        servers: with their variables expanded.
    """

    def __init__(self, servers: Sequence[ServerConfig]) -> None:
        self._configs = {server.name: server for server in servers}
        self._pools = {server.name: Pool(server) for server in servers if not server.per_trajectory}
        self._sessions: dict[str, Connection] = {}
        self._starting = asyncio.Semaphore(_STARTS_PER_CORE * usable_cores())

    async def open(self) -> Mapping[str, Listing]:
        """See `Servers.open`."""
        starts: dict[str, Awaitable[Listing]] = {
            name: self._pools[name].open(self._starting) if name in self._pools else self._look_at(config)
            for name, config in self._configs.items()
        }
        outcomes = await asyncio.gather(*starts.values(), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for failure in failures:
            if not isinstance(failure, BackendError):
                raise failure
        if failures:
            raise BackendError("\n\n".join(map(str, failures)))
        return {name: outcome for name, outcome in zip(starts, outcomes, strict=True) if isinstance(outcome, Listing)}

    async def _look_at(self, config: ServerConfig) -> Listing:
        """What a server offers of which each trajectory will have its own."""
        connection = Connection(config)
        try:
            async with self._starting:
                return await connection.open()
        finally:
            await connection.close()

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], session: str = "") -> str:
        """See `Servers.call`."""
        if not session:
            return await self._pools[server].call(tool, arguments)
        connection = self._sessions.get(session)
        if connection is None:
            raise ToolUnavailableError(f"MCP server {server} has lost the trajectory's session")
        return await connection.call(tool, arguments)

    async def start_session(self, server: str) -> str:
        """See `Servers.start_session`; one that dies is not started again, as its state would be gone."""
        connection = Connection(self._configs[server], restarts=False)
        try:
            async with self._starting:
                await connection.open()
        except BackendError as error:
            await connection.close()
            raise ToolUnavailableError(str(error)) from error
        except BaseException:
            await connection.close()
            raise
        session = uuid.uuid4().hex
        self._sessions[session] = connection
        return session

    async def end_session(self, session: str) -> None:
        """See `Servers.end_session`."""
        connection = self._sessions.pop(session, None)
        if connection is not None:
            await connection.close()

    async def close(self) -> None:
        """See `Servers.close`."""
        sessions, self._sessions = self._sessions, {}
        open_ones: list[Pool | Connection] = [*self._pools.values(), *sessions.values()]
        await asyncio.gather(*(item.close() for item in open_ones))
