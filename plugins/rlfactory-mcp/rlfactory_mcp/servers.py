"""All servers of a configuration behind one interface, which hides from a tool in which process they run."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from rlfactory_core.errors import BackendError, ToolUnavailableError
from rlfactory_core.utils.cpu import usable_cores
from rlfactory_mcp.compat import Listing
from rlfactory_mcp.config import ServerConfig
from rlfactory_mcp.connection import Connection

_log = logging.getLogger(__name__)

_RESTART_WAIT_S = 5.0


class Pool:
    """The replicas of a server; the least loaded one takes the next call.

    Several replicas take one call each at a time, and calls wait in the order in which they came. A replica takes no
    call if it is down, or has not yet shown that it survived a cancelled call. If no replica is up, a call waits up to
    five seconds for a restart, because most restarts take less and a failure would mask the trajectory.
    """

    def __init__(self, server: ServerConfig) -> None:
        self._name = server.name
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._connections = [Connection(server, changed=self._changed.set) for _ in range(server.replicas)]

    async def open(self, slots: asyncio.Semaphore) -> Listing:
        """Start all replicas; ``slots`` limits how many start at once.

        Raises:
            BackendError: one of them does not start.
        """

        async def start(connection: Connection) -> Listing:
            async with slots:
                return await connection.open()

        listings = await asyncio.gather(*map(start, self._connections), return_exceptions=True)
        for listing in listings:
            if isinstance(listing, BaseException):
                raise listing
        return next(listing for listing in listings if isinstance(listing, Listing))

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Make a call on a free replica; see `Connection.call`."""
        connection = await self._take()
        try:
            return await connection.call(tool, arguments)
        finally:
            connection.load -= 1
            self._changed.set()

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))

    async def _take(self) -> Connection:
        patience = None if any(connection.up for connection in self._connections) else _RESTART_WAIT_S
        try:
            async with asyncio.timeout(patience), self._turn:
                while (connection := self._free()) is None:
                    self._changed.clear()
                    await self._changed.wait()
                connection.load += 1
                return connection
        except TimeoutError:
            raise ToolUnavailableError(f"MCP server {self._name} is down") from None

    def _free(self) -> Connection | None:
        able = [connection for connection in self._connections if connection.up]
        if len(self._connections) > 1:
            able = [connection for connection in able if not connection.load and not connection.suspect]
        return min(able, key=lambda connection: connection.load, default=None)


_STARTS_PER_CORE = 2  # servers that start at once; more of them only delay each other


class LocalServers:
    """Servers in this process and event loop, named as in the configuration; tools are named as the servers name them.

    Args:
        servers: with their variables expanded.
    """

    def __init__(self, servers: Sequence[ServerConfig]) -> None:
        self._configs = {server.name: server for server in servers}
        self._pools = {server.name: Pool(server) for server in servers if not server.per_trajectory}
        self._sessions: dict[str, Connection] = {}
        self._starting = asyncio.Semaphore(_STARTS_PER_CORE * usable_cores())

    async def open(self) -> Mapping[str, Listing]:
        """Start all servers in parallel; returns what each offers, by server.

        Raises:
            BackendError: some do not start; the message has the reason of each.
        """
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
        listings = {each: found for each, found in zip(starts, outcomes, strict=True) if isinstance(found, Listing)}
        for name, listing in listings.items():
            for problem in listing.problems:
                _log.warning("MCP server %s: %s", name, problem)
        return listings

    async def _look_at(self, config: ServerConfig) -> Listing:
        """Start and end a server once to learn what it offers; each trajectory will start its own."""
        connection = Connection(config)
        try:
            async with self._starting:
                return await connection.open()
        finally:
            await connection.close()

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], session: str = "") -> str:
        """The tool's answer as text; see `Connection.call` for what it raises.

        Args:
            session: from `start_session`, for a server with one session for each trajectory.
        """
        if not session:
            return await self._pools[server].call(tool, arguments)
        connection = self._sessions.get(session)
        if connection is None:
            raise ToolUnavailableError(f"MCP server {server} has lost the trajectory's session")
        return await connection.call(tool, arguments)

    async def start_session(self, server: str) -> str:
        """Start a connection for one trajectory; returns its name. If it dies, its state is lost, so it stays down.

        Raises:
            ToolUnavailableError: it does not start.
        """
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
        """End a session; unknown names are ignored."""
        connection = self._sessions.pop(session, None)
        if connection is not None:
            await connection.close()

    async def close(self) -> None:
        """End all servers, also after a failed `open`; bounded in time."""
        sessions, self._sessions = self._sessions, {}
        open_ones: list[Pool | Connection] = [*self._pools.values(), *sessions.values()]
        await asyncio.gather(*(item.close() for item in open_ones))
