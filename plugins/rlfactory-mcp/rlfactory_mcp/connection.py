"""One connection to one server: starts the server, watches it, and starts it again when it dies.

The SDK's streams belong to the asyncio task that opened them, so each connection runs in a task of its own. Calls may
come from any task of the same event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio

from rlfactory_core.errors import BackendError, ToolArgumentsError, ToolError, ToolFailedError, ToolUnavailableError
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_mcp import compat
from rlfactory_mcp.calls import PipeCalls, SessionCalls, has_images, render
from rlfactory_mcp.compat import Listing, RpcError
from rlfactory_mcp.config import ServerConfig
from rlfactory_mcp.http import open_sse, open_streamable_http
from rlfactory_mcp.link import LastWords, LinkRequest, RefusedError, explain, in_words, leaves
from rlfactory_mcp.listing import introduce, list_tools
from rlfactory_mcp.stdio import open_stdio

_log = logging.getLogger(__name__)

_BACKOFF_S = (0.1, 30.0)  # the pause after the first death and the longest pause, before jitter
_STEADY_S = 60.0  # the backoff starts again after a server has lived this long
_GOODBYE_S = 2.0  # for the orderly end of an HTTP session
_CLOSE_S = 10.0  # longer than all limits of a transport; then the task is cancelled

_NO_TOOL = re.compile(r"(?i)unknown tool|tool\b.*\bnot found")  # what servers say, some as an error, some as a result

_OPENERS = {"stdio": open_stdio, "http": open_streamable_http, "sse": open_sse}


class _Life:
    """The state of a connection from one start to the next loss."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.last_words = LastWords()
        self.session: Any = None
        self.calls: PipeCalls | SessionCalls | None = None  # None: the server is not up
        self.end: Callable[[], None] = self.over.set  # ends the server in order, also while it starts
        self.kill: Callable[[], None] = lambda: None
        self.answers = 0
        self.check: asyncio.Task[None] | None = None


class Connection:
    """``await open()``, `call` from any task, ``await close()``.

    Args:
        server: with its variables expanded.
        restarts: whether a server that dies is started again; otherwise later calls are refused.
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
        self._kinds: tuple[str, ...] = ("http", "sse") if server.kind == "auto" else (server.kind,)
        self.load = 0  # calls in flight, counted by the pool

    @property
    def up(self) -> bool:
        return self._life.calls is not None and not self._life.over.is_set()

    @property
    def suspect(self) -> bool:
        """Whether a call was cancelled and the server has not shown since then that it is alive."""
        return self._life.check is not None

    async def open(self) -> Listing:
        """Start the server.

        Raises:
            BackendError: it does not start; the message has the end of its stderr.
        """
        if self._supervisor is None:
            self._supervisor = asyncio.ensure_future(self._supervise())
            # If it ends before the first start is complete, nobody waits for the listing for ever.
            self._supervisor.add_done_callback(lambda _: self._listing.cancel())
        return await asyncio.shield(self._listing)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """The tool's answer as text.

        Raises:
            ToolError: the tool reports a failure.
            ToolArgumentsError: the server refuses the arguments.
            ToolFailedError: the server itself failed.
            ToolUnavailableError: the server is not up, went down during the call, or does not offer the tool any more.
        """
        life = self._life
        if life.calls is None or life.over.is_set():
            raise ToolUnavailableError(f"MCP server {self._server.name} is not up")
        try:
            result = await life.calls.call_tool(tool, arguments)
            life.answers += 1
            return await asyncio.to_thread(render, result) if has_images(result) else render(result)
        except asyncio.CancelledError:
            self._check(life)
            raise
        except Exception as error:
            failure = error if isinstance(error, (ToolError, ToolFailedError)) else self._attribute(error, life)
            if isinstance(failure, ToolError) and _NO_TOOL.search(str(failure)) and not await _offers(life, tool):
                gone = f"MCP server {self._server.name} does not offer the tool {tool} any more: {failure}"
                raise ToolUnavailableError(gone) from error
            raise failure from error

    async def close(self) -> None:
        """End the server, whatever state it is in, within twenty seconds."""
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
            self._listing.exception()  # marks it as read, because the caller of `open` has got it
        self._listing.cancel()

    def _attribute(self, error: Exception, life: _Life) -> Exception:
        """The error to raise for a failed call."""
        lost = isinstance(error, (anyio.ClosedResourceError, anyio.BrokenResourceError))
        if lost or (isinstance(error, RpcError) and error.connection_lost):
            self._check(life)
            return ToolUnavailableError(f"MCP server {self._server.name} did not answer: {error}")
        life.answers += 1
        if isinstance(error, RpcError):
            if error.internal:
                return ToolFailedError(f"MCP server {self._server.name}: {error.message}")
            return (ToolArgumentsError if error.invalid_arguments else ToolError)(error.message)
        return ToolFailedError(f"MCP server {self._server.name}: the server's answer is not valid")

    def _check(self, life: _Life) -> None:
        """Find out whether the server is still alive, after a call that was cancelled or lost."""
        if life.check is None and not life.over.is_set():
            life.check = asyncio.ensure_future(self._ping(life))

    async def _ping(self, life: _Life) -> None:
        """Ping the server, and kill it if it answers neither the ping nor any call in time."""
        answers = life.answers
        try:
            await asyncio.wait_for(life.session.send_ping(), self._server.ping_timeout)
        except Exception:  # noqa: BLE001 - any error means that there was no answer
            if life.answers == answers and not life.over.is_set():
                _log.warning("MCP server %s does not answer any more", self._server.name)
                life.kill()
                life.over.set()
        finally:
            life.check = None
            self._changed()

    async def _supervise(self) -> None:
        """Start the server, and start it again after each loss, until the connection is closed."""
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
            pause = backoff_s(deaths, *_BACKOFF_S, least=0.5)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause)

    async def _live(self) -> None:
        """Run from one start to the next loss; raises the error that prevented the start or ended the server."""
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
                # This is how the protocol finds out which of its two HTTP transports a server speaks.
                if kind == self._kinds[-1] or not any(isinstance(leaf, RefusedError) for leaf in leaves(error)):
                    raise
                refused = in_words(error)

    async def _live_over(self, kind: str, life: _Life) -> None:
        clock = anyio.current_time
        started = False
        with anyio.CancelScope(deadline=clock() + self._server.start_timeout) as scope:
            life.end = scope.cancel
            async with _OPENERS[kind](LinkRequest(self._server, life.over, life.last_words)) as link:
                life.kill = link.kill
                async with compat.session(link.read, link.write) as session:
                    listing = await introduce(session)
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
            raise TimeoutError(f"it did not answer within {self._server.start_timeout:g} s (start_timeout)")

    def _bury(self, life: _Life) -> None:
        """Fail the calls in flight at once."""
        life.over.set()
        if life.calls is not None:
            life.calls.lose()
        if life.check is not None:
            life.check.cancel()


async def _offers(life: _Life, tool: str) -> bool:
    """Whether the server still lists a tool that it does not know in a call."""
    try:
        return tool in {each.name for each in await list_tools(life.session, [])}
    except Exception:  # noqa: BLE001 the boundary to the SDK; the error stays what it was
        return True
