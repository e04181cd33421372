"""The connections to one server, and which of them takes a call."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.tools.mcp.compat import Listing
from rlfactory_core.tools.mcp.config import ServerConfig
from rlfactory_core.tools.mcp.connection import Connection

_RESTART_WAIT_S = 5.0


class Pool:
    """The replicas of a server: the least loaded takes the next call.

    With several, each takes one call at a time, and calls wait for their turn in the order in which they came. One that
    is down, or that has not yet shown that it survived a cut call, takes none. While none is up at all, a call waits up
    to five seconds for a restart: most take less, and a call that waits is better than a masked trajectory.
    """

    def __init__(self, server: ServerConfig) -> None:
        self._server = server
        self._limit = 1 if server.replicas > 1 else math.inf
        self._connections = [Connection(server, changed=self._hand_out) for _ in range(server.replicas)]
        self._waiting: deque[asyncio.Future[Connection]] = deque()

    async def open(self, slots: asyncio.Semaphore) -> Listing:
        """Start all replicas, as many at once as there are slots.

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
        """See `Connection.call`."""
        while True:
            connection = self._take() or await self._wait()
            if connection.up:
                break
            self._give_back(connection)  # it went down between the word that it is free and this call
        try:
            return await connection.call(tool, arguments)
        finally:
            self._give_back(connection)

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))

    def _take(self) -> Connection | None:
        limited = self._limit == 1
        able = [c for c in self._connections if c.up and c.load < self._limit and not (limited and c.suspect)]
        if not able:
            return None
        connection = min(able, key=lambda item: item.load)
        connection.load += 1
        return connection

    def _give_back(self, connection: Connection) -> None:
        connection.load -= 1
        self._hand_out()

    async def _wait(self) -> Connection:
        """The next connection that is free; first come, first served."""
        turn: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        patience = None if any(connection.up for connection in self._connections) else _RESTART_WAIT_S
        try:
            await asyncio.wait((turn,), timeout=patience)
        except asyncio.CancelledError:
            if turn.done():
                self._give_back(turn.result())
            raise
        finally:
            turn.cancel()  # does nothing to one that is done
        if turn.cancelled():
            raise ToolUnavailableError(f"MCP server {self._server.name} is down")
        return turn.result()

    def _hand_out(self) -> None:
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
                continue
            connection = self._take()
            if connection is None:
                return
            self._waiting.popleft().set_result(connection)
