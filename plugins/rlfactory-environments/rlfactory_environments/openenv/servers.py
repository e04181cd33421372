"""The servers of a run: which one the next session gets, how many each allows, and how long one waits for them.

Many servers allow one session at a time. An episode then waits in the queue of its process until another one has ended.
Processes do not know of each other: a server that is full because of others is asked again and again, with pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import BackendError
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_environments.openenv.messages import Observed, ServerFullError, UnreadyServerError
from rlfactory_environments.openenv.session import Session, open_session

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


class Lease:
    """A session whose episode has begun; `close` it once."""

    def __init__(self, session: Session, begun: Observed, servers: Servers, server: _Server) -> None:
        self.session, self.begun = session, begun
        self._servers, self._server = servers, server

    async def close(self) -> None:
        """End the session and make room for the next one."""
        try:
            await self.session.close()
        finally:
            await self._servers.give_back(self._server, opened=True)


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

    async def lease(self, parameters: Mapping[str, Any]) -> Lease:
        """A session on the server with the fewest sessions, in which an episode has begun.

        Args:
            parameters: of the reset.

        Raises:
            BackendError: no server could be had in time, or the environment cannot begin.
        """
        started, error = asyncio.get_running_loop().time(), BackendError("no server is free")
        while True:
            server = await self._take(started, error)
            try:
                return await self._begin(server, parameters)
            except UnreadyServerError as failed:
                error = failed
                self._rest(server, failed)
                await self.give_back(server)
            except BaseException:
                await asyncio.shield(self.give_back(server))
                raise

    async def _begin(self, server: _Server, parameters: Mapping[str, Any]) -> Lease:
        waiting = self._waiting
        session = await open_session(
            server.url, deadline_s=waiting.request_s, connect_s=waiting.connect_s, headers=self._headers
        )
        try:
            begun = await session.reset(parameters)
        except BaseException:
            await asyncio.shield(session.close())
            raise
        server.failures, server.opened = 0, server.opened + 1
        self._progressed = asyncio.get_running_loop().time()
        return Lease(session, begun, self, server)

    async def give_back(self, server: _Server, *, opened: bool = False) -> None:
        """Make room on a server."""
        server.held -= 1
        if opened:
            server.opened -= 1
            self._progressed = asyncio.get_running_loop().time()
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
