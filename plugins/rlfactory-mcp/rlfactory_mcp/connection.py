"""One connection to one server: starts the server, watches it, and starts it again when it dies.

A transport belongs to the asyncio task that opened it, so each connection runs in a task of its own. Calls may come
from any task of the same event loop.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from rlfactory_core.errors import BackendError, ToolArgumentsError, ToolError, ToolFailedError, ToolUnavailableError
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_mcp.config import ServerConfig
from rlfactory_mcp.http import open_sse, open_streamable_http
from rlfactory_mcp.listing import Listing, introduce, list_tools
from rlfactory_mcp.reasons import LastWords, RefusedError, explain, in_words
from rlfactory_mcp.results import has_images, render
from rlfactory_mcp.rpc import INTERNAL, INVALID_PARAMS, RELAYED, Peer, RpcError
from rlfactory_mcp.stdio import open_stdio

_log = logging.getLogger(__name__)

_BACKOFF_S = (0.1, 30.0)  # the pause after the first death and the longest pause, before jitter
_STEADY_S = 60.0  # the backoff starts again after a server has lived this long
_GOODBYE_S = 2.0  # for the orderly end of an HTTP session
_CLOSE_S = 10.0  # longer than all limits of a transport; then the task is cancelled

_NO_TOOL = re.compile(r"(?i)unknown tool|tool\b.*\bnot found")  # what servers say, some as an error, some as a result

Opener = Callable[[ServerConfig, LastWords], AbstractAsyncContextManager[Peer]]
TRANSPORTS: Mapping[str, Sequence[Opener]] = {
    "stdio": (open_stdio,),
    "http": (open_streamable_http,),
    "sse": (open_sse,),
    "auto": (open_streamable_http, open_sse),
}


class _Life:
    """The state of a connection from one start to the next loss."""

    def __init__(self) -> None:
        self.last_words = LastWords()
        self.peer: Peer | None = None  # None: the server is not up
        self.check: asyncio.Task[None] | None = None


class Connection:
    """``await open()``, `call` from any task, ``await close()``.

    Args:
        server: with its variables expanded.
        openers: of its transport; of several, the first that the server does not refuse.
        restarts: whether a server that dies is started again; otherwise later calls are refused.
        changed: called when `up` or `suspect` may have changed.
    """

    def __init__(
        self,
        server: ServerConfig,
        openers: Sequence[Opener],
        *,
        restarts: bool = True,
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        self._server = server
        self._openers = openers
        self._restarts = restarts
        self._changed = changed
        self._life = _Life()
        self._closing = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._listing: asyncio.Future[Listing] = asyncio.get_running_loop().create_future()
        self.load = 0  # calls in flight, counted by the pool

    @property
    def up(self) -> bool:
        return self._life.peer is not None and not self._life.peer.over.is_set()

    @property
    def suspect(self) -> bool:
        """Whether a call was cancelled and the server has not shown since then that it is alive."""
        return self._life.check is not None

    async def open(self) -> Listing:
        """Start the server.

        Raises:
            BackendError: it does not start; the message has the reason with the end of its stderr.
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
        try:
            result = await self.request("tools/call", {"name": tool, "arguments": dict(arguments)})
            return await asyncio.to_thread(render, result) if has_images(result) else render(result)
        except (RpcError, ToolError) as error:
            if isinstance(error, RpcError) and error.code == INTERNAL:  # written about the server, and not for a caller
                raise ToolFailedError(f"MCP server {self._server.name}: {error}") from error
            if _NO_TOOL.search(str(error)) and not await _offers(life.peer, tool):
                gone = f"MCP server {self._server.name} does not offer the tool {tool} any more: {error}"
                raise ToolUnavailableError(gone) from error
            if isinstance(error, ToolError):
                raise
            raise (ToolArgumentsError if error.code == INVALID_PARAMS else ToolError)(str(error)) from error
        except ValueError as error:
            raise ToolFailedError(f"MCP server {self._server.name}: the server's answer is not valid") from error

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a request, in its wire form.

        Raises:
            RpcError: the server answers with an error.
            ValueError: its answer is not valid.
            ToolUnavailableError: the server is not up, or went down during the request.
        """
        life = self._life
        if life.peer is None or life.peer.over.is_set():
            raise ToolUnavailableError(f"MCP server {self._server.name} is not up")
        try:
            return await life.peer.request(method, params)
        except asyncio.CancelledError:
            self._check(life)
            raise
        except RpcError as error:
            if not error.lost:
                raise
            self._check(life)
            said = str(error) if error.code == RELAYED else f"MCP server {self._server.name} did not answer: {error}"
            raise ToolUnavailableError(said) from error

    async def close(self) -> None:
        """End the server, whatever state it is in, within twenty seconds."""
        self._closing.set()
        if self._supervisor is None:
            return
        if self._life.peer is None:
            self._supervisor.cancel()
        else:
            self._life.peer.lose()
        await asyncio.wait((self._supervisor,), timeout=_CLOSE_S)
        if not self._supervisor.done():
            if self._life.peer is not None:
                self._life.peer.kill()
            self._supervisor.cancel()
            await asyncio.wait((self._supervisor,), timeout=_CLOSE_S)
        if self._listing.done() and not self._listing.cancelled():
            self._listing.exception()  # marks it as read, because the caller of `open` has got it
        self._listing.cancel()

    def _check(self, life: _Life) -> None:
        """Find out whether the server is still alive, after a call that was cancelled or lost."""
        if life.check is None and life.peer is not None and not life.peer.over.is_set():
            life.check = asyncio.ensure_future(self._ping(life, life.peer))

    async def _ping(self, life: _Life, peer: Peer) -> None:
        """Ping the server, and kill it if it answers neither the ping nor any call in time."""
        answered = peer.answered
        try:
            await asyncio.wait_for(peer.request("ping", {}), self._server.ping_timeout)
        except Exception:  # noqa: BLE001 - any error means that there was no answer
            if peer.answered == answered and not peer.over.is_set():
                _log.warning("MCP server %s does not answer any more", self._server.name)
                peer.kill()
                peer.lose()
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
            except Exception as failure:  # noqa: BLE001 the boundary to the transports
                error = failure
            if self._closing.is_set():
                return
            reason = explain(self._server, error, self._life.last_words)
            if not self._listing.done():
                self._listing.set_exception(BackendError(reason))
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
        refused: list[str] = []
        for opener in self._openers:
            self._life = _Life()
            try:
                await self._live_over(opener, self._life)
                return
            except Exception as error:
                # A refusal is how the protocol finds out which of its two HTTP transports a server speaks.
                if not refused and not isinstance(error, RefusedError):
                    raise
                refused.append(in_words(error))
        raise RefusedError(refused[0] if len(refused) == 1 else "streamable HTTP: {}; SSE: {}".format(*refused))

    async def _live_over(self, opener: Opener, life: _Life) -> None:
        clock = asyncio.get_running_loop().time
        try:
            async with (
                asyncio.timeout(self._server.start_timeout) as limit,
                opener(self._server, life.last_words) as peer,
            ):
                listing = await introduce(peer)
                limit.reschedule(None)
                life.peer = peer
                self._openers = (opener,)
                if not self._listing.done():
                    self._listing.set_result(listing)
                self._changed()
                try:
                    await peer.over.wait()
                finally:
                    if life.check is not None:
                        life.check.cancel()
                    limit.reschedule(clock() + _GOODBYE_S)
        except TimeoutError as error:
            if life.peer is None and limit.expired():
                late = f"it did not answer within {self._server.start_timeout:g} s (start_timeout)"
                raise TimeoutError(late) from error
            if life.peer is None:
                raise


async def _offers(peer: Peer | None, tool: str) -> bool:
    """Whether the server still lists a tool that it does not know in a call."""
    try:
        return peer is None or tool in {each.name for each in await list_tools(peer, [])}
    except Exception:  # noqa: BLE001 the boundary to the server; the error stays what it was
        return True
