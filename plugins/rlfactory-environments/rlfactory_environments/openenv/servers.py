"""The servers of a run: which one the next session gets, how many each allows, and how long one waits for them.

Many servers allow one session at a time. An episode then waits in the queue of its process until another one has ended.
Processes do not know of each other: a server that is full because of others is asked again and again, with pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import BackendError
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_environments.openenv.session import (
    Observed,
    ServerFullError,
    Session,
    UnreadyServerError,
    open_session,
)

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long is waited for what, in seconds."""

    request_s: float = 60.0  # one request
    connect_s: float = 30.0  # for a server that cannot be reached, while this process has no session
    queue_s: float = 600.0  # for a server that is full because of others, likewise


@dataclass(slots=True)
class _Server:
    url: str
    most: int  # sessions at once
    held: int = 0  # given out, also those that are being opened
    opened: int = 0  # of these, in which an episode has begun
    failures: int = 0  # in a row
    rests_until: float = 0.0
    warned: bool = False


class Servers:
    """A pool of servers with the same environment.

    Args:
        urls: of the servers.
        most: sessions that each server may have from this process; None: until the server says that it is full.
        headers: of the connection's opening request.
    """

    def __init__(
        self, urls: Sequence[str], *, most: int | None, waiting: Waiting, headers: Mapping[str, str] | None = None
    ) -> None:
        self._servers = [_Server(url, most or 2**31) for url in urls]
        self._waiting, self._headers = waiting, headers
        self._changed = asyncio.Condition()
        self._progressed = 0.0  # when an episode of this process began or ended last

    @asynccontextmanager
    async def lease(self, parameters: Mapping[str, Any]) -> AsyncIterator[tuple[Session, Observed]]:
        """A session on the server with the fewest sessions, and the beginning of its episode.

        Args:
            parameters: of the reset.

        Raises:
            BackendError: no server could be had in time, or the environment cannot begin.
        """
        started, error = asyncio.get_running_loop().time(), BackendError("no server is free")
        async with AsyncExitStack() as leased:
            while True:
                server = await self._take(started, error)
                leased.push_async_callback(self._give_back, server)
                try:
                    session = await open_session(
                        server.url,
                        deadline_s=self._waiting.request_s,
                        connect_s=self._waiting.connect_s,
                        headers=self._headers,
                    )
                    leased.push_async_callback(session.close)
                    begun = await session.reset(parameters)
                    break
                except UnreadyServerError as failed:
                    error = failed
                    self._rest(server, failed)
                    await leased.aclose()
            server.failures, server.opened = 0, server.opened + 1
            leased.callback(self._ended, server)
            self._progressed = asyncio.get_running_loop().time()
            yield session, begun

    def _ended(self, server: _Server) -> None:
        server.opened -= 1
        self._progressed = asyncio.get_running_loop().time()

    async def _give_back(self, server: _Server) -> None:
        """Make room on a server."""
        server.held -= 1
        async with self._changed:
            self._changed.notify_all()

    async def _take(self, started: float, error: BackendError) -> _Server:
        """Wait until a server has room and does not rest. While an episode goes on in this process, it will end."""
        loop = asyncio.get_running_loop()
        patience = self._waiting.queue_s if isinstance(error, ServerFullError) else self._waiting.connect_s
        async with self._changed:
            while True:
                now = loop.time()
                open_ones = [each for each in self._servers if each.held < each.most]
                ready = [each for each in open_ones if each.rests_until <= now]
                if ready:
                    server = min(ready, key=lambda each: (each.failures > 0, each.held))
                    server.held += 1
                    return server
                waiting_since = now if any(each.opened for each in self._servers) else max(started, self._progressed)
                if now - waiting_since >= patience:
                    raise error
                pause = min((each.rests_until - now for each in open_ones), default=_LONGEST_PAUSE_S)
                try:
                    async with asyncio.timeout(max(pause, 0.001)):
                        await self._changed.wait()
                except TimeoutError:
                    continue

    def _rest(self, server: _Server, error: UnreadyServerError) -> None:
        server.failures += 1
        pause = backoff_s(server.failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S, least=0.5)
        server.rests_until = asyncio.get_running_loop().time() + pause
        if not isinstance(error, ServerFullError):
            _log.warning("%s", error)
            return
        others = server.held - 1  # sessions of this process, without the refused one
        server.most = min(server.most, error.most or max(1, others))
        if not server.warned:
            server.warned = True
            _log.warning("%s The other episodes wait for one of its sessions to end.", error)
