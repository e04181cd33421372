"""JSON-RPC with a server: requests, answers and their errors in wire form, whatever carries them."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

UNREACHABLE = -32098  # ours, in the range that JSON-RPC leaves free: there was no answer of an MCP server
RELAYED = -32097  # ours: the process that keeps the servers says it, in words for the user
INVALID_PARAMS = -32602
INTERNAL = -32603
_NO_METHOD = -32601
_UNREADABLE = {-32700, -32600, _NO_METHOD}  # about the form of a message, to which no arguments of a call lead


class RpcError(Exception):
    """The error in an answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def lost(self) -> bool:
        """Whether there was no answer of an MCP server; a proxy may have written this one."""
        return self.code in (UNREACHABLE, RELAYED) or self.code in _UNREADABLE


class Peer:
    """The server's end of an open connection. Its transport gives what arrives to `take`, and at the end calls `lose`.

    Args:
        send: accepts a message without waiting for the server to read it.
        kill: ends the connection at once, whatever state the server is in.
    """

    def __init__(self, send: Callable[[Mapping[str, Any]], object], kill: Callable[[], object] = lambda: None) -> None:
        self.kill = kill
        self.over = asyncio.Event()
        self.answered = 0  # requests
        self.version = ""  # of the protocol, after the handshake
        self._send = send
        self._numbers = itertools.count(1)
        self._answers: dict[Any, asyncio.Future[Mapping[str, Any] | None]] = {}
        self._reason: Exception = RpcError(UNREACHABLE, "the connection was closed")

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a request. If it is cancelled, the server is told so.

        Raises:
            RpcError: the server answers with an error, or the connection is lost.
            ValueError: the answer holds neither a result nor an error.
        """
        if self.over.is_set():
            raise self._reason
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            message = await answer
        except asyncio.CancelledError:
            self.notify("notifications/cancelled", {"requestId": number})
            raise
        finally:
            del self._answers[number]
        if message is None:
            raise self._reason
        result, error = message.get("result"), message.get("error")
        failure = None
        if isinstance(error, Mapping) and isinstance(error.get("code"), int):
            failure = RpcError(error["code"], str(error.get("message", "")))
        self.answered += failure is None or failure.code not in (UNREACHABLE, RELAYED)
        if isinstance(result, Mapping):
            return result
        raise failure or ValueError("neither a result nor an error")

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        if not self.over.is_set():
            self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def take(self, message: Mapping[str, Any]) -> None:
        """Use what the server sent: an answer, which may be of a cancelled request, a request or a notification."""
        number = message.get("id")
        if "method" in message:
            if number is not None and not self.over.is_set():
                refusal = {"error": {"code": _NO_METHOD, "message": "this client only calls tools"}}
                reply = {"result": {}} if message["method"] == "ping" else refusal
                self._send({"jsonrpc": "2.0", "id": number, **reply})
            return
        if isinstance(number, str) and number.isdecimal():  # some servers return it as a string
            number = int(number)
        answer = self._answers.get(number) if isinstance(number, int) else None
        if answer is not None and not answer.done():
            answer.set_result(message)

    def lose(self, reason: Exception | None = None) -> None:
        """Fail the requests in flight and all later ones, because the server is gone."""
        if not self.over.is_set():
            self._reason = reason or self._reason
            self.over.set()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_result(None)


def parsed(text: str | bytes) -> dict[str, Any] | None:
    """The message in a text, also without what JSON-RPC asks for; None if there is none."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_message = isinstance(message, dict) and not message.keys().isdisjoint(("method", "result", "error"))
    return message if is_message else None


def to_line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


LONGEST_LINE = 1 << 28  # bytes; a server with longer lines does not speak MCP


async def read_lines(
    reader: asyncio.StreamReader, peer: Peer, other: Callable[[bytes], object] = lambda line: None
) -> None:
    """Give the peer the messages that arrive, until the end.

    Args:
        other: gets the lines that are no messages.
    """
    try:
        async for line in reader:
            message = parsed(line)
            if message is not None:
                peer.take(message)
            elif line.strip():
                other(line)
    except (OSError, ValueError):  # reset, or a line that does not end
        pass
    finally:
        peer.lose()
