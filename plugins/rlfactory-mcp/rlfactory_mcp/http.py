"""Connects to a server by its address, over streamable HTTP or the older SSE transport.

The SDK's transports end or hang when a single request fails, so a server that is overloaded for a moment would end all
calls in flight. Here a failed request becomes an error for the one call that it carried. In the same way, a
server-sent event of more than 1 MiB, at which the SDK's second generation ends the connection, becomes an error for
the call that it answers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from rlfactory_mcp import compat
from rlfactory_mcp.link import Link, LinkRequest, RefusedError

_log = logging.getLogger(__name__)

_CONNECT_S = 30.0
_START = " (nothing answers there: start the server, or correct its url)"
_SESSION = "mcp-session-id"
_NO_ENTRY = (401, 403)  # such a status says nothing about the transport


@asynccontextmanager
async def open_streamable_http(request: LinkRequest) -> AsyncIterator[Link]:
    """Sends messages as POST requests, and tells the server when the session ends."""
    server = request.server
    _log_no_tracebacks()

    def failed(sent: Any, status: int | None) -> None:
        if status == 404 and _SESSION in sent.headers:
            request.over.set()  # the server forgot the session, and a new one has to be made

    async with (
        _client(dict(server.headers), failed, answer=True) as client,
        compat.streamable_http(server.url, client) as streams,
    ):
        yield Link(streams[0], streams[1])


@asynccontextmanager
async def open_sse(request: LinkRequest) -> AsyncIterator[Link]:
    """Answers come over one long request; its end is the end of the connection."""
    server = request.server
    _log_no_tracebacks()

    def make_client(**_: Any) -> Any:
        return _client(dict(server.headers), lambda *_: request.over.set(), answer=False)

    async with compat.sse(server.url, make_client) as (source, write):
        deliver, read = anyio.create_memory_object_stream[Any](0)
        relaying = asyncio.ensure_future(_relay(source, deliver, request.over))
        try:
            yield Link(read, write)
        finally:
            relaying.cancel()
            for stream in (deliver, read):
                stream.close()


def _log_no_tracebacks() -> None:
    """The SDK logs one for each answer that it cannot read; the call's fault says it in a line."""
    for transport in ("streamable_http", "sse"):
        logging.getLogger(f"mcp.client.{transport}").addFilter(_is_quiet)


def _is_quiet(record: logging.LogRecord) -> bool:
    return record.levelno < logging.WARNING


async def _relay(source: Any, deliver: Any, over: asyncio.Event) -> None:
    """Passes messages on to the session, which itself does not notice when they end."""
    try:
        async for message in source:
            await deliver.send(message)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the session has ended first
    finally:
        over.set()
        deliver.close()


def _client(headers: dict[str, str], failed: Callable[[Any, int | None], None], *, answer: bool) -> Any:
    """An HTTP client that calls ``failed`` for each request that fails, with the status if there was an answer.

    Args:
        answer: turn the failure into a JSON-RPC error for the call that the request carried, instead of raising it.
    """
    package = compat.http_package()

    class Client(package.AsyncClient):  # type: ignore[misc, name-defined]
        """Overrides the method that sends every request."""

        async def send(self, request: Any, **options: Any) -> Any:
            try:
                response = await super().send(request, **options)
                foreign = await _foreign(response) if answer and request.method == "POST" else ""
            except package.TransportError as error:
                if request.method == "POST":
                    failed(request, None)
                    if answer:
                        unreachable = isinstance(error, package.ConnectError)
                        return _failure(package, request, type(error).__name__ + (_START if unreachable else ""))
                raise
            if request.method == "POST" and response.status_code >= 400:
                failed(request, response.status_code)
                if answer:
                    await response.aread()
                    await response.aclose()
                    return _failure(package, request, f"HTTP {response.status_code}", response)
            if foreign:
                await response.aclose()
                return _failure(package, request, foreign)
            if not answer and request.method == "GET":
                response.aiter_text = partial(fitting, response.aiter_text())
            return response

    # The calls have deadlines and limits of their own.
    timeout = package.Timeout(_CONNECT_S, read=None, pool=None)
    limits = package.Limits(max_connections=None, max_keepalive_connections=64)
    return Client(headers=headers, timeout=timeout, limits=limits)


async def _foreign(response: Any) -> str:
    """What tells that no MCP server wrote this answer, but a proxy, say; the SDK's first generation would wait on."""
    kind = response.headers.get("content-type", "")
    if response.status_code != 200 or "text/event-stream" in kind:
        return ""
    if "application/json" not in kind:
        return f"an answer of the type {kind!r:.60} instead of JSON"
    try:
        is_message = isinstance(json.loads(await response.aread()), (dict, list))
    except (ValueError, RecursionError):
        is_message = False
    return "" if is_message else "an answer that is not JSON-RPC"


def _failure(package: Any, request: Any, reason: str, response: Any = None) -> Any:
    """The answer to a request that failed: a JSON-RPC error for a call, nothing for a notification."""
    sent = json.loads(request.content)
    if "id" not in sent or "method" not in sent:
        return package.Response(202, request=request)
    error: dict[str, Any] = {"code": compat.UNREACHABLE, "message": reason}
    if response is not None and 400 <= response.status_code < 500:
        said = _said(response)
        if said.get("code") == compat.INVALID_PARAMS:
            error = said
        elif isinstance(said.get("message"), str):
            error["message"] += f": {said['message']}"
        if sent["method"] == "initialize" and response.status_code not in _NO_ENTRY:
            raise RefusedError(error["message"])
    answer = {"jsonrpc": "2.0", "id": sent["id"], "error": error}
    return package.Response(200, json=answer, request=request)


def _said(response: Any) -> dict[str, Any]:
    """The JSON-RPC error in a response's body, if there is one."""
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}


_LONGEST = 1 << 20  # bytes of an event
_LINE_END = re.compile(r"\r\n|\n|\r")
_EVENT_END = re.compile(r"\r\n\r\n|\n\n|\r\r")
_TOO_LONG = -32097  # ours, in the range that JSON-RPC leaves free


async def fitting(chunks: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yields each event as a whole, and replaces those that are too long."""
    parts: list[str] = []
    breaks = ""  # line breaks at the end of a chunk, which may be the first half of an event's end
    async for chunk in chunks:
        *ended, begun = _EVENT_END.split(breaks + chunk)
        for event in ended:
            whole = "".join((*parts, event))
            yield f"{whole if len(whole.encode()) <= _LONGEST else _error_for(whole)}\n\n"
            parts.clear()
        body = begun.rstrip("\r\n")
        breaks = begun[len(body) :]
        parts.append(body)


def _error_for(event: str) -> str:
    """Replaces an event by an error for the call that it answers, or by a comment if it answers none."""
    lines = _LINE_END.split(event)
    data = "\n".join(line.removeprefix("data:") for line in lines if line.startswith("data:"))
    try:
        message = json.loads(data)
        number = message["id"]
    except (ValueError, KeyError, TypeError):
        return ":"
    if "method" in message:
        return ":"
    error = {"code": _TOO_LONG, "message": f"the answer is too long ({len(data):,} characters)"}
    return f"data: {json.dumps({'jsonrpc': '2.0', 'id': number, 'error': error})}"
