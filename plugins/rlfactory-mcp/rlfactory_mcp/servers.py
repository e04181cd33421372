"""All servers of a configuration behind one interface, which hides from a tool in which process they run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rlfactory_core.errors import BackendError, ToolUnavailableError
from rlfactory_core.utils.cpu import usable_cores
from rlfactory_mcp.config import ServerConfig
from rlfactory_mcp.connection import TRANSPORTS, Connection, Opener
from rlfactory_mcp.listing import Listing

_log = logging.getLogger(__name__)

_RESTART_WAIT_S = 5.0
_STARTS_PER_CORE = 2  # servers that start at once; more of them only delay each other


class Pool:
    """The replicas of a server; the least loaded one takes the next call.

    Several replicas take one call each at a time, and calls wait in the order in which they came. A replica takes no
    call if it is down, or has not yet shown that it survived a cancelled call. If no replica is up, a call waits up to
    five seconds for a restart, because most restarts take less and a failure would mask the trajectory.
    """

    def __init__(self, server: ServerConfig, openers: Sequence[Opener], replicas: int) -> None:
        self._name = server.name
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._connections = [Connection(server, openers, changed=self._changed.set) for _ in range(replicas)]

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
        async with self._taken() as connection:
            return await connection.call(tool, arguments)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Connection.request`."""
        async with self._taken() as connection:
            return await connection.request(method, params)

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))

    @asynccontextmanager
    async def _taken(self) -> AsyncIterator[Connection]:
        patience = None if any(connection.up for connection in self._connections) else _RESTART_WAIT_S
        try:
            async with asyncio.timeout(patience), self._turn:
                while (connection := self._free()) is None:
                    self._changed.clear()
                    await self._changed.wait()
                connection.load += 1
        except TimeoutError:
            raise ToolUnavailableError(f"MCP server {self._name} is down") from None
        try:
            yield connection
        finally:
            connection.load -= 1
            self._changed.set()

    def _free(self) -> Connection | None:
        able = [connection for connection in self._connections if connection.up]
        if len(self._connections) > 1:
            able = [connection for connection in able if not connection.load and not connection.suspect]
        return min(able, key=lambda connection: connection.load, default=None)


class Servers:
    """Servers in this event loop, named as in the configuration; tools are named as the servers name them.

    Args:
        servers: with their variables expanded.
        shared: opens a connection to a server that a process keeps for its group; None: they run for this process.
    """

    def __init__(self, servers: Sequence[ServerConfig], shared: Opener | None = None) -> None:
        self._configs = {server.name: server for server in servers}
        self.pools = {
            server.name: Pool(server, (shared,), 1) if shared else Pool(server, _openers(server), server.replicas)
            for server in servers
            if not server.per_trajectory
        }
        self._sessions: set[Connection] = set()
        self._starting = asyncio.Semaphore(_STARTS_PER_CORE * usable_cores())

    async def open(self) -> Mapping[str, Listing]:
        """Start all servers in parallel; returns what each offers, by server.

        Raises:
            BackendError: some do not start; the message has the reason of each.
        """
        starts = [self.start(name) for name in self._configs]
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
        listings: dict[str, Listing] = {}
        failures: list[str] = []
        for name, outcome in zip(self._configs, outcomes, strict=True):
            if isinstance(outcome, BackendError):
                failures.append(f"MCP server {name!r} does not start: {outcome}")
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                listings[name] = outcome
        if failures:
            raise BackendError("\n\n".join(failures))
        for name, listing in listings.items():
            for problem in listing.problems:
                _log.warning("MCP server %s: %s", name, problem)
        return listings

    async def start(self, name: str) -> Listing:
        """Start a server; one of which each trajectory has its own is ended again, when it is known what it offers."""
        if name in self.pools:
            return await self.pools[name].open(self._starting)
        config = self._configs[name]
        connection = Connection(config, _openers(config))
        try:
            async with self._starting:
                return await connection.open()
        finally:
            await connection.close()

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> str:
        """The tool's answer as text; see `Connection.call` for what it raises."""
        return await self.pools[server].call(tool, arguments)

    async def start_session(self, server: str) -> Connection:
        """Start a server for one trajectory. If it dies, its state is lost, so it stays down.

        Raises:
            ToolUnavailableError: it does not start.
        """
        config = self._configs[server]
        connection = Connection(config, _openers(config), restarts=False)
        self._sessions.add(connection)
        try:
            async with self._starting:
                await connection.open()
        except BaseException as error:
            await self.end_session(connection)
            if isinstance(error, BackendError):
                raise ToolUnavailableError(f"MCP server {server!r} does not start: {error}") from error
            raise
        return connection

    async def end_session(self, connection: Connection) -> None:
        self._sessions.discard(connection)
        await connection.close()

    async def close(self) -> None:
        """End all servers, also after a failed `open`; bounded in time."""
        open_ones: list[Pool | Connection] = [*self.pools.values(), *self._sessions]
        await asyncio.gather(*(item.close() for item in open_ones))


def _openers(server: ServerConfig) -> Sequence[Opener]:
    return TRANSPORTS[server.kind]
