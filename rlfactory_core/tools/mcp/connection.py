"""One connection to one server, kept up: started, watched, and started again when it dies.

The SDK's streams belong to the task that opened them, so each connection lives in one task of its own; calls come from
any task of the same event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio

from rlfactory_core.errors import BackendError, ToolArgumentsError, ToolError, ToolUnavailableError
from rlfactory_core.tools.mcp import compat
from rlfactory_core.tools.mcp.calls import Calls, SessionCalls
from rlfactory_core.tools.mcp.compat import Listing, RpcError
from rlfactory_core.tools.mcp.config import ServerConfig
from rlfactory_core.tools.mcp.explaining import explain, in_words, leaves
from rlfactory_core.tools.mcp.http import RefusedError, open_sse, open_streamable_http
from rlfactory_core.tools.mcp.link import LastWords, LinkRequest
from rlfactory_core.tools.mcp.rendering import render
from rlfactory_core.tools.mcp.stdio import open_stdio

_log = logging.getLogger(__name__)

_BACKOFF_S = (0.1, 30.0)  # the pause after the first death and the longest, before jitter
_STEADY_S = 60.0  # a server that lived this long is not one that dies at every start
_GOODBYE_S = 2.0  # for an HTTP session to be ended in order
_CLOSE_S = 10.0  # longer than all of a transport's own limits; after it the task is cancelled

_OPENERS = {"stdio": open_stdio, "http": open_streamable_http, "sse": open_sse}


class _Life:
    """What a connection has from one start to the next loss."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.last_words = LastWords()
        self.session: Any = None
        self.calls: Calls | None = None  # none: the server is not up
        self.end: Callable[[], None] = self.over.set  # in order, also while the server starts
        self.kill: Callable[[], None] = lambda: None
        self.answers = 0
        self.check: asyncio.Task[None] | None = None


class Connection:
    """``await open()``, `call` from any task, ``await close()``.

    Args:
        server: with its variables expanded.
        restarts: whether a server that dies is started again; without, calls are refused from then on.
        changed: called when `up` or `suspect` may have changed.
    """

    def __init__(
        self, server: ServerConfig, *, restarts: bool = True, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._server = server
        self._restarts = restarts
        self._changed = changed
        self._life = _Life()
        self._closing = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._listing: asyncio.Future[Listing] = asyncio.get_running_loop().create_future()
        self._kinds: tuple[str, ...] = ("http", "sse") if server.transport == "auto" else (server.transport,)
        self.load = 0  # calls under way, as counted by whoever shares this connection out

    @property
    def up(self) -> bool:
        return self._life.calls is not None and not self._life.over.is_set()

    @property
    def suspect(self) -> bool:
        """A call was cut, and the server has not shown since then that it lives."""
        return self._life.check is not None

    async def open(self) -> Listing:
        """Start the server.

        Raises:
            BackendError: it does not start, with what it wrote to stderr.
        """
        if self._supervisor is None:
            self._supervisor = asyncio.ensure_future(self._supervise())
        return await asyncio.shield(self._listing)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """The text that the tool answers.

        Raises:
            ToolError: the tool says no.
            ToolArgumentsError: the server refuses the arguments.
            ToolUnavailableError: the server is not up, or went down under the call.
        """
        life = self._life
        if life.calls is None or life.over.is_set():
            raise ToolUnavailableError(f"MCP server {self._server.name} is not up")
        try:
            result = await life.calls.call_tool(tool, arguments)
        except asyncio.CancelledError:
            self._check(life)
            raise
        except Exception as error:
            raise self._attribute(error, life) from error
        life.answers += 1
        return render(result)

    async def close(self) -> None:
        """End the server, within ten seconds whatever state it is in."""
        self._closing.set()
        self._life.end()
        if self._supervisor is None:
            return
        await asyncio.wait((self._supervisor,), timeout=_CLOSE_S)
        if not self._supervisor.done():
            self._life.kill()
            self._supervisor.cancel()
            await asyncio.wait((self._supervisor,), timeout=_CLOSE_S)
        if self._listing.done() and not self._listing.cancelled():
            self._listing.exception()  # whoever asked for it has been told
        self._listing.cancel()

    def _attribute(self, error: Exception, life: _Life) -> Exception:
        """Whose fault a failed call is."""
        lost = isinstance(error, (anyio.ClosedResourceError, anyio.BrokenResourceError))
        if lost or (isinstance(error, RpcError) and error.connection_lost):
            self._check(life)
            return ToolUnavailableError(f"MCP server {self._server.name} did not answer: {error}")
        life.answers += 1
        if isinstance(error, RpcError):
            return (ToolArgumentsError if error.invalid_arguments else ToolError)(error.message)
        return ToolError("the server's answer is not valid")

    def _check(self, life: _Life) -> None:
        """After a call that was cut or failed to arrive: see whether the server still lives."""
        if life.check is None and not life.over.is_set():
            life.check = asyncio.ensure_future(self._ping(life))

    async def _ping(self, life: _Life) -> None:
        """A server that neither answers a ping nor anything else in time is made an end of."""
        answers = life.answers
        try:
            await asyncio.wait_for(compat.ping(life.session), self._server.ping_timeout_s)
        except Exception:  # noqa: BLE001 whatever it is, it is no answer
            if life.answers == answers and not life.over.is_set():
                _log.warning("MCP server %s does not answer any more", self._server.name)
                life.kill()
                life.over.set()
        finally:
            life.check = None
            self._changed()

    async def _supervise(self) -> None:
        try:
            await self._supervise_lives()
        finally:
            if not self._listing.done():  # closed, or cancelled, before the first start was over
                self._listing.cancel()

    async def _supervise_lives(self) -> None:
        clock = asyncio.get_running_loop().time
        deaths = 0
        while not self._closing.is_set():
            began = clock()
            error: Exception | None = None
            try:
                await self._live()
            except Exception as failure:  # noqa: BLE001 the boundary to the SDK and its transports
                error = failure
            if self._closing.is_set():
                return
            reason = explain(self._server, error, self._life.last_words)
            if not self._listing.done():
                self._listing.set_exception(BackendError(f"MCP server {self._server.name!r} does not start: {reason}"))
                return
            _log.warning("MCP server %s is down: %s", self._server.name, reason)
            if not self._restarts:
                return
            deaths = 1 if clock() - began > _STEADY_S else deaths + 1
            first, longest = _BACKOFF_S
            pause = random.uniform(0.5, 1.0) * min(longest, first * 2.0 ** (deaths - 1))
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause)

    async def _live(self) -> None:
        """From one start to the next loss; raises what kept the server from starting, or ended it."""
        refused = ""
        for kind in self._kinds:
            self._life = _Life()
            if self._closing.is_set():
                return
            try:
                await self._live_over(kind, self._life)
                return
            except Exception as error:
                if refused:
                    raise RefusedError(f"streamable HTTP: {refused}; SSE: {in_words(error)}") from error
                # The protocol's way to find out which of its two HTTP transports a server speaks.
                if kind == self._kinds[-1] or not any(isinstance(leaf, RefusedError) for leaf in leaves(error)):
                    raise
                refused = in_words(error)

    async def _live_over(self, kind: str, life: _Life) -> None:
        clock = anyio.current_time
        started = False
        with anyio.CancelScope(deadline=clock() + self._server.start_timeout_s) as scope:
            life.end = scope.cancel
            async with _OPENERS[kind](LinkRequest(self._server, life.over, life.last_words)) as link:
                life.kill = link.kill
                async with compat.session(link.read, link.write) as session:
                    listing = await compat.introduce(session)
                    scope.deadline = math.inf
                    started = True
                    life.session = session
                    life.calls = link.calls or SessionCalls(session)
                    life.end = life.over.set
                    self._kinds = (kind,)
                    if not self._listing.done():
                        self._listing.set_result(listing)
                    self._changed()
                    try:
                        await life.over.wait()
                    finally:
                        self._bury(life)
                        scope.deadline = clock() + _GOODBYE_S
        if not started and not self._closing.is_set():
            raise TimeoutError(f"it did not answer within {self._server.start_timeout_s:g} s (start_timeout)")

    def _bury(self, life: _Life) -> None:
        """Calls under way learn at once that there will be no answer."""
        life.over.set()
        if life.calls is not None:
            life.calls.lose()
        if life.check is not None:
            life.check.cancel()
