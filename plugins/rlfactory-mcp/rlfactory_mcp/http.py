"""Connects to a server by its address, over streamable HTTP or the older SSE transport.

A request that fails is the failure of the one call that it carried. The stream on which a server may speak first is not
opened, because nothing that comes there is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

import httpx

from rlfactory_mcp.config import ServerConfig
from rlfactory_mcp.reasons import LastWords, RefusedError
from rlfactory_mcp.rpc import INVALID_PARAMS, LONGEST_LINE, UNREACHABLE, Peer, parsed

_CONNECT_S = 30.0
_START = " (nothing answers there: start the server, or correct its url)"
_NO_ENTRY = (401, 403)  # such a status says nothing about the transport
_EVENTS = "text/event-stream"
_ATTEMPTS = 3  # to get the whole of an answer whose stream breaks off
_RETRY_S = 1.0  # before the next one, if the server names no time
_HOPS = 3  # from one path of a server to another


@asynccontextmanager
async def open_streamable_http(server: ServerConfig, last_words: LastWords) -> AsyncIterator[Peer]:
    """Sends messages as POST requests, and tells the server when the session ends."""
    outbox: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
    async with _client(server) as client:
        session = _Session(server.url, client, Peer(outbox.put_nowait))
        requests: set[asyncio.Task[None]] = set()

        async def send() -> None:
            while True:
                message = await outbox.get()
                sending = asyncio.ensure_future(session.send(message))
                requests.add(sending)
                sending.add_done_callback(requests.discard)
                if "method" not in message or "id" not in message:
                    await asyncio.wait((sending,))  # what follows may depend on it

        sender = asyncio.ensure_future(send())
        try:
            yield session.peer
        finally:
            session.peer.lose()
            await _end(sender, *requests)
            await session.end()


class _Session:
    def __init__(self, url: str, client: httpx.AsyncClient, peer: Peer) -> None:
        self.peer = peer
        self._url, self._client = url, client
        self._name = ""

    async def send(self, message: Mapping[str, Any]) -> None:
        """Post a message; a request that fails gets an error for its answer."""
        try:
            error = await self._exchange(message)
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            error = type(failure).__name__ + (_START if isinstance(failure, httpx.ConnectError) else "")
        if error and "method" in message and "id" in message:
            failed = error if isinstance(error, dict) else {"code": UNREACHABLE, "message": error}
            self.peer.take({"id": message["id"], "error": failed})

    async def end(self) -> None:
        if self._name:
            with suppress(httpx.HTTPError):
                await self._client.delete(self._url, headers=self._headers())

    def _headers(self) -> dict[str, str]:
        said = {"mcp-session-id": self._name, "mcp-protocol-version": self.peer.version}
        return {"accept": f"application/json, {_EVENTS}", **{key: value for key, value in said.items() if value}}

    async def _exchange(self, message: Mapping[str, Any]) -> str | dict[str, Any]:
        """Send it and pass on its answer; returns why there is none."""
        place = _Place()
        async with _request(self._client, "POST", self._url, headers=self._headers(), json=message) as response:
            if response.status_code >= 300:
                return await self._refusal(message, response)
            if "method" not in message or "id" not in message:
                return ""
            self._name = response.headers.get("mcp-session-id", "") if message["method"] == "initialize" else self._name
            kind = response.headers.get("content-type", "")
            if _EVENTS not in kind:
                if "application/json" not in kind:
                    return f"an answer of the type {kind!r:.60} instead of JSON"
                return self._pass_on(message, await _body(response))
            error = await self._read(message, response, place)
        for _ in range(_ATTEMPTS - 1):
            if error is not None or not place.last:
                break
            await asyncio.sleep(place.retry_s)
            headers = {**self._headers(), "last-event-id": place.last}
            async with _request(self._client, "GET", self._url, headers=headers) as response:
                if response.status_code == 200:
                    error = await self._read(message, response, place)
        return "the answer broke off" if error is None else error

    async def _read(self, message: Mapping[str, Any], response: httpx.Response, place: _Place) -> str | None:
        """Pass on what comes until the answer; None: the stream ended before it."""
        with suppress(httpx.HTTPError):
            async for event in _events(response, place):
                found = parsed(event.data)
                if found is not None and "method" in found:
                    self.peer.take(found)
                elif event.data:
                    return self._pass_on(message, event.data)
        return None

    def _pass_on(self, message: Mapping[str, Any], text: str | bytes) -> str:
        answer = parsed(text)
        if answer is None or "method" in answer:
            return "an answer that is not JSON-RPC"
        self.peer.take({**answer, "id": message["id"]})
        return ""

    async def _refusal(self, message: Mapping[str, Any], response: httpx.Response) -> str | dict[str, Any]:
        status, reason = response.status_code, f"HTTP {response.status_code}"
        if status == 404 and self._name:
            self.peer.lose()  # the server forgot the session, and a new one has to be made
        if status < 400:
            return f"{reason}: write the address to which it refers, {response.headers.get('location')!r}"
        said = (parsed(await _body(response)) or {}).get("error") if status < 500 else None
        if isinstance(said, dict):
            if said.get("code") == INVALID_PARAMS:
                return said
            reason += f": {said['message']}" if isinstance(said.get("message"), str) else ""
        if message.get("method") == "initialize" and status < 500 and status not in _NO_ENTRY:
            self.peer.lose(RefusedError(reason))
        return reason


@asynccontextmanager
async def open_sse(server: ServerConfig, last_words: LastWords) -> AsyncIterator[Peer]:
    """Answers come over one long request; its end is the end of the connection.

    Raises:
        RefusedError, httpx.HTTPError: the request fails, or is answered by something else.
    """
    outbox: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
    peer = Peer(outbox.put_nowait)
    headers = {"accept": _EVENTS}
    async with _client(server) as client, _request(client, "GET", server.url, headers=headers) as response:
        if response.status_code != 200:
            raise RefusedError(f"HTTP {response.status_code}")
        events = _events(response, _Place())
        async for event in events:
            if event.kind == "endpoint":
                break
        else:
            raise RefusedError("no server-sent events of MCP")
        address = urljoin(server.url, event.data)
        if _origin(httpx.URL(address)) != _origin(httpx.URL(server.url)):
            raise RefusedError(f"messages are to be sent to another server, {address}")

        async def send() -> None:
            while True:
                message = await outbox.get()
                async with _request(client, "POST", address, json=message) as answer:
                    if answer.status_code >= 300:
                        return

        async def read() -> None:
            async for event in events:
                message = parsed(event.data)
                if message is not None:
                    peer.take(message)

        tasks = [asyncio.ensure_future(_losing(peer, work)) for work in (send(), read())]
        try:
            yield peer
        finally:
            await _end(*tasks)


async def _losing(peer: Peer, work: Any) -> None:
    """Run to the end, or to a failure; either loses the peer."""
    try:
        with suppress(httpx.HTTPError):
            await work
    finally:
        peer.lose()


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _client(server: ServerConfig) -> httpx.AsyncClient:
    # The calls have deadlines and limits of their own.
    timeout = httpx.Timeout(_CONNECT_S, read=None, pool=None)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    return httpx.AsyncClient(headers=server.headers, timeout=timeout, limits=limits)


@asynccontextmanager
async def _request(client: httpx.AsyncClient, method: str, url: str, **options: Any) -> AsyncIterator[httpx.Response]:
    """A response whose body is not read yet. Redirects are followed within the server, for it gets the headers."""
    response = await client.send(client.build_request(method, url, **options), stream=True)
    try:
        for _ in range(_HOPS):
            following = response.next_request
            if following is None or following.method != method or _origin(following.url) != _origin(httpx.URL(url)):
                break
            await response.aclose()
            response = await client.send(following, stream=True)
        yield response
    finally:
        await response.aclose()


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def _body(response: httpx.Response) -> bytes:
    """The whole body; of one that is too long, the beginning, which is no message."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > LONGEST_LINE:
            break
    return bytes(body)


@dataclass(frozen=True, slots=True)
class _Event:
    kind: str
    data: str


@dataclass(slots=True)
class _Place:
    """From where a stream that broke off goes on."""

    last: str = ""  # the id of an event
    retry_s: float = _RETRY_S


async def _events(response: httpx.Response, place: _Place) -> AsyncIterator[_Event]:
    """The server-sent events of a response; ``place`` moves on with them."""
    kind, data = "message", list[str]()
    async for line in _lines(response.aiter_bytes()):
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield _Event(kind, "\n".join(data))
            kind, data = "message", []
        elif key == "event":
            kind = value
        elif key == "data":
            data.append(value)
        elif key == "id":
            place.last = value
        elif key == "retry" and value.isdecimal():
            place.retry_s = int(value) / 1000


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Complete lines. httpx' own would also end them where a text within has a line separator of Unicode.

    Raises:
        httpx.DecodingError: a line does not end.
    """
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        head, *tail = chunk.split(b"\n")
        parts.append(head)
        size += len(head)
        if size > LONGEST_LINE:
            raise httpx.DecodingError("an event does not end")
        for line in tail:
            yield b"".join(parts).decode("utf-8", "replace").removesuffix("\r")
            parts, size = [line], len(line)
