"""Calls under way on one connection: over a server's pipe, or in the SDK's session.

On a pipe a call does not go through the session, which costs more than all the rest of it: every message is validated,
copied and handed on several times. The session keeps the handshake, pings and what the server asks of us.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pydantic_core import from_json

from rlfactory_core.tools.mcp import compat
from rlfactory_core.tools.mcp.compat import RpcError

_FIRST_NUMBER = 1_000_000_000  # the session counts its requests from zero


class Calls(Protocol):
    """Of one life of a connection."""

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result in its wire form. A call that is cancelled is taken back at the server.

        Raises:
            RpcError: what the server answers instead, or that it is gone.
        """
        ...

    def lose(self) -> None:
        """The server is gone: calls under way learn that there will be no answer."""
        ...


class PipeCalls:
    """`Calls` that write their requests themselves, and take their answers before the session sees them.

    Args:
        write: takes bytes at once, however slowly the server reads.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._unwritten: list[bytes] = []
        self._numbers = itertools.count(_FIRST_NUMBER)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._lost = False

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Calls.call_tool`."""
        if self._lost:
            raise RpcError.lost()
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send("tools/call", {"name": name, "arguments": dict(arguments)}, number)
        try:
            message = await answer
        except asyncio.CancelledError:
            self._send("notifications/cancelled", {"requestId": number})
            raise
        finally:
            del self._answers[number]
        return compat.result_of(message)

    def take(self, line: bytes) -> bool:
        """Whether a line from the server answers a call, also one that was cancelled; then it is dealt with."""
        message = _parse(line)
        if not isinstance(message, dict) or "method" in message:
            return False
        number = message.get("id")
        if isinstance(number, str) and number.isdecimal():  # some servers give it back as text
            number = int(number)
        if not isinstance(number, int) or number < _FIRST_NUMBER:
            return False
        answer = self._answers.get(number)
        if answer is not None and not answer.done():
            answer.set_result(message)
        return True

    def lose(self) -> None:
        """See `Calls.lose`."""
        self._lost = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(RpcError.lost())

    def _send(self, method: str, params: Mapping[str, Any], number: int | None = None) -> None:
        """Calls that are made at once go out in one write."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unwritten.append(json.dumps(message).encode() + b"\n")

    def _flush(self) -> None:
        if not self._lost:
            self._write(b"".join(self._unwritten))
        self._unwritten.clear()


def _parse(line: bytes) -> Any:
    """None where it is not JSON. Half characters, as JavaScript servers cut texts, pass only the slower parser."""
    try:
        return from_json(line)
    except ValueError:
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            return None


class SessionCalls:
    """`Calls` in the SDK's session, for transports that are more than a pipe."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._tasks: set[asyncio.Task[Mapping[str, Any]]] = set()
        self._lost = False

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Calls.call_tool`."""
        # A task of its own can be cancelled when the session ends: one that ends leaves its callers waiting.
        task = asyncio.ensure_future(compat.call_tool(self._session, name, arguments))
        self._tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._lost:
                raise RpcError.lost() from None
            raise
        finally:
            self._tasks.discard(task)

    def lose(self) -> None:
        """See `Calls.lose`."""
        self._lost = True
        for task in self._tasks:
            task.cancel()
