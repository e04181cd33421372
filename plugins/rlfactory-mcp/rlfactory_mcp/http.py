"""Connects to a server by its address, over streamable HTTP or the older SSE transport.

A request that fails is the failure of the one call that it carried. The stream on which a server may speak first is not
opened, because nothing that comes there is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urljoin

import httpx

from rlfactory_mcp.config import ServerConfig
from rlfactory_mcp.reasons import LastWords, RefusedError
from rlfactory_mcp.rpc import INVALID_PARAMS, LONGEST_LINE, UNREACHABLE, Peer, RpcError, parsed

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
    requests: set[asyncio.Task[None]] = set()
    async with _client(server) as client:
        session = _Session(server.url, client, Peer(outbox.put_nowait))

        async def send_all() -> None:
            while True:
                message = await outbox.get()
                sending = asyncio.ensure_future(session.send(message))
                requests.add(sending)
                sending.add_done_callback(requests.discard)
                if not _is_request(message):
                    await asyncio.wait((sending,))  # what follows may depend on it

        sender = asyncio.ensure_future(send_all())
        try:
            yield session.peer
        finally:
            session.peer.lose()
            await _end(sender, *requests)
            await session.end()


class _Session:
    """One session over streamable HTTP; its name is the server's."""

    def __init__(self, url: str, client: httpx.AsyncClient, peer: Peer) -> None:
        self.peer = peer
        self._url, self._client = url, client
        self._name = ""

    async def send(self, message: Mapping[str, Any]) -> None:
        """Post a message, and give the peer its answer, if it is a request."""
        try:
            answer = await self._answer(message)
        except RpcError as error:
            answer = {"error": {"code": error.code, "message": str(error)}}
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = type(error).__name__ + (_START if isinstance(error, httpx.ConnectError) else "")
            answer = {"error": {"code": UNREACHABLE, "message": why}}
        if _is_request(message):
            self.peer.take({**answer, "id": message["id"]})

    async def end(self) -> None:
        if self._name:
            with suppress(httpx.HTTPError):
                await self._client.delete(self._url, headers=self._headers())

    def _headers(self) -> dict[str, str]:
        said = {"mcp-session-id": self._name, "mcp-protocol-version": self.peer.version}
        return {"accept": f"application/json, {_EVENTS}", **{key: value for key, value in said.items() if value}}

    async def _answer(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to a request, or nothing; raises `RpcError` or an error of httpx if the request fails."""
        events = _Events()
        async with _request(self._client, "POST", self._url, headers=self._headers(), json=message) as response:
            if response.status_code >= 300:
                raise await self._refusal(message, response)
            if not _is_request(message):
                return {}
            if message["method"] == "initialize":
                self._name = response.headers.get("mcp-session-id", "")
            kind = response.headers.get("content-type", "")
            if "application/json" in kind:
                return _valid(await _body(response))
            if _EVENTS not in kind:
                raise RpcError(UNREACHABLE, f"an answer of the type {kind!r:.60} instead of JSON")
            answer = await self._read(events, response)
        for _ in range(_ATTEMPTS - 1):
            if answer is not None or not events.last:
                break
            await asyncio.sleep(events.retry_s)
            headers = {**self._headers(), "last-event-id": events.last}
            async with _request(self._client, "GET", self._url, headers=headers) as response:
                answer = await self._read(events, response) if response.status_code == 200 else None
        if answer is None:
            raise RpcError(UNREACHABLE, "the answer broke off")
        return answer

    async def _read(self, events: _Events, response: httpx.Response) -> Mapping[str, Any] | None:
        """Pass on what comes before the answer; None: the stream ended before it."""
        with suppress(httpx.HTTPError):
            async for _, text in events.of(response):
                message = _valid(text)
                if "method" not in message:
                    return message
                self.peer.take(message)
        return None

    async def _refusal(self, message: Mapping[str, Any], response: httpx.Response) -> RpcError:
        status, reason = response.status_code, f"HTTP {response.status_code}"
        if status == 404 and self._name:
            self.peer.lose()  # the server forgot the session, and a new one has to be made
        if status < 400:
            reason += f": write the address to which it refers, {response.headers.get('location')!r}"
        elif status < 500:
            body = parsed(await _body(response)) or {}
            error = body["error"] if isinstance(body.get("error"), dict) else {}
            if error.get("code") == INVALID_PARAMS:
                return RpcError(INVALID_PARAMS, str(error.get("message", "")))
            reason += f": {error['message']}" if isinstance(error.get("message"), str) else ""
            if message.get("method") == "initialize" and status not in _NO_ENTRY:
                self.peer.lose(RefusedError(reason))
        return RpcError(UNREACHABLE, reason)


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
        events = _Events().of(response)
        address = ""
        async for kind, text in events:
            if kind == "endpoint":
                address = urljoin(server.url, text)
                break
        if not address or _origin(httpx.URL(address)) != _origin(httpx.URL(server.url)):
            raise RefusedError(f"it names {address or 'no address'} for messages; expected one of the same server")

        async def send_all() -> None:
            while True:
                async with _request(client, "POST", address, json=await outbox.get()) as answer:
                    if answer.status_code >= 300:
                        return

        async def read_all() -> None:
            async for _, text in events:
                peer.take(parsed(text) or {})

        async def losing(work: Callable[[], Awaitable[None]]) -> None:
            """Run to the end, or to a failure; either loses the peer."""
            try:
                with suppress(httpx.HTTPError):
                    await work()
            finally:
                peer.lose()

        tasks = [asyncio.ensure_future(losing(work)) for work in (send_all, read_all)]
        try:
            yield peer
        finally:
            await _end(*tasks)


def _is_request(message: Mapping[str, Any]) -> bool:
    """And not a notification, or the answer to a request of the server."""
    return "method" in message and "id" in message


def _valid(text: str | bytes) -> dict[str, Any]:
    message = parsed(text)
    if message is None:
        raise RpcError(UNREACHABLE, "an answer that is not JSON-RPC")
    return message


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


class _Events:
    """Reads server-sent events, and remembers from where a stream that broke off goes on."""

    def __init__(self) -> None:
        self.last = ""  # the id of an event
        self.retry_s = _RETRY_S

    async def of(self, response: httpx.Response) -> AsyncIterator[tuple[str, str]]:
        """The kind and the text of each event that has a text."""
        kind, data = "message", list[str]()
        async for line in _lines(response):
            key, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line:
                if any(data):  # an event that only has an id is empty
                    yield kind, "\n".join(data)
                kind, data = "message", []
            elif key == "event":
                kind = value
            elif key == "data":
                data.append(value)
            elif key == "id":
                self.last = value
            elif key == "retry" and value.isdecimal():
                self.retry_s = int(value) / 1000


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Complete lines. httpx' own would also end them where a text within has a line separator of Unicode.

    Raises:
        httpx.DecodingError: a line does not end.
    """
    parts: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        head, *tail = chunk.split(b"\n")
        parts.append(head)
        size += len(head)
        if size > LONGEST_LINE:
            raise httpx.DecodingError("an event does not end")
        for line in tail:
            yield b"".join(parts).decode("utf-8", "replace").removesuffix("\r")
            parts, size = [line], len(line)
