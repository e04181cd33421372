"""An OpenAI-compatible server on the loopback that fails as real ones do, at the level of the connection.

`fake_openai` answers; this one hangs, drops, drips and comes back. It runs in a thread with an event loop of its own,
so that a client under test can be driven from another one.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

_PATIENCE_S = 60.0  # of a test, before it fails
_PROBES = (  # clients' questions at start; not a part of the script
    "Hello",
    "Is the sky blue? Answer with one word.",
    "Continue: one, two, three,",
    "Question: What is 17 + 25? Answer: 43. Is the answer right? Give a score from 0 to 10.",
    "Name a colour, an animal and a city.",
)


class Connection:
    """Where one request's answer goes."""

    def __init__(self, writer: asyncio.StreamWriter, body: Mapping[str, Any]) -> None:
        self.writer, self.body = writer, body
        self.keep = True

    async def send(
        self, status: int, data: bytes, *, headers: Mapping[str, str] | None = None, length: int | None = None
    ) -> None:
        """Status line, headers and body; ``length`` is what is promised where that is not what is sent."""
        rows = {"Content-Type": "application/json", "Content-Length": str(len(data) if length is None else length)}
        rows |= headers or {}
        head = "".join(f"{name}: {value}\r\n" for name, value in rows.items())
        self.writer.write(f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode() + data)
        await self.writer.drain()

    def drop(self) -> None:
        """A reset, as by a process that is killed."""
        self.keep = False
        self.writer.transport.abort()


Act = Callable[[Connection], Awaitable[None]]
"""What the server does with one request."""


def completion(content: str | None, *, finish: str = "stop", usage: bool = True, **message: Any) -> dict[str, Any]:
    """A chat completion of 100 prompt tokens and 10 sampled ones."""
    row = {"role": "assistant", "content": content, **message}
    data: dict[str, Any] = {"choices": [{"index": 0, "message": row, "finish_reason": finish}]}
    return data | ({"usage": {"prompt_tokens": 100, "completion_tokens": 10}} if usage else {})


def said(content: str | None, *, finish: str = "stop", usage: bool = True, **message: Any) -> Act:
    """A sound answer."""
    return sent(json.dumps(completion(content, finish=finish, usage=usage, **message)).encode())


def sent(data: bytes, status: int = 200, **headers: str) -> Act:
    """These bytes, well framed; underscores in header names stand for hyphens."""

    async def act(connection: Connection) -> None:
        await connection.send(status, data, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return act


def refused(status: int, message: str = "no", **headers: str) -> Act:
    """An error in OpenAI's form."""
    return sent(json.dumps({"error": {"message": message}}).encode(), status, **headers)


def dropped() -> Act:
    """The connection is reset before a byte of the answer."""

    async def act(connection: Connection) -> None:
        connection.drop()

    return act


def torn(content: str) -> Act:
    """The connection is reset in the middle of a body that says ``content``."""

    async def act(connection: Connection) -> None:
        data = json.dumps(completion(content)).encode()
        await connection.send(200, data[: len(data) // 2], length=len(data))
        connection.drop()

    return act


def hung() -> Act:
    """Never an answer; ends when the client gives up."""

    async def act(connection: Connection) -> None:
        await asyncio.Event().wait()

    return act


def dripped(content: str, pause_s: float) -> Act:
    """A sound answer, one byte at a time."""

    async def act(connection: Connection) -> None:
        data = json.dumps(completion(content)).encode()
        await connection.send(200, b"", length=len(data))
        for index in range(len(data)):
            connection.writer.write(data[index : index + 1])
            await asyncio.sleep(pause_s)

    return act


class Gate:
    """Closed until a test opens it, from whatever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        with self._lock:
            self._is_open = True
            for loop, event in self._waiting:
                loop.call_soon_threadsafe(event.set)

    def before(self, act: Act) -> Act:
        """``act``, once the gate is open."""

        async def gated(connection: Connection) -> None:
            event = asyncio.Event()
            with self._lock:
                self._waiting.append((asyncio.get_running_loop(), event))
                if self._is_open:
                    event.set()
            await event.wait()
            await act(connection)

        return gated


class FaultyServer:
    """What it was asked, and what came of it; ``url`` ends with /v1."""

    def __init__(self, script: tuple[Act, ...], then: Act, probe: Act, models: Act) -> None:
        self.script, self.then, self.probe, self.models = list(script), then, probe, models
        self.requests: list[dict[str, Any]] = []  # without the questions at start
        self.probes: list[dict[str, Any]] = []
        self.health_checks = 0
        self.gave_up = 0  # requests whose client closed the connection before the answer
        self.connections = 0  # open now
        self.most_connections = 0
        self.most_at_once = 0  # requests
        self._now = 0
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.base_events.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self._socket = _bound(0)
        self._port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/v1"

    def go_down(self) -> None:
        """As a process that is killed: no listener, and all connections reset."""
        asyncio.run_coroutine_threadsafe(self._go_down(), self._loop).result(_PATIENCE_S)

    def come_up(self) -> None:
        """Listen again, on the same port."""
        asyncio.run_coroutine_threadsafe(self._come_up(), self._loop).result(_PATIENCE_S)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait, without holding up the caller's event loop, for something to happen here."""

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(condition, _PATIENCE_S)

        assert await asyncio.to_thread(wait), "it did not happen"

    def run(self) -> None:
        """The thread's work."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def stop(self) -> None:
        self.go_down()
        self._socket.close()
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _come_up(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._socket)

    async def _go_down(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            self._socket = _bound(self._port)
        handlers = list(self._handlers)
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self._note(connections=1)
        try:
            while await self._exchange(reader, writer):
                pass
        except asyncio.CancelledError:
            writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._handlers.discard(task)
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._note(connections=-1)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; False: the connection is over."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length")), 0)
        body = json.loads(await reader.readexactly(length) or b"{}")
        connection = Connection(writer, body)
        act = asyncio.ensure_future(self._act(body)(connection))
        gone = asyncio.ensure_future(reader.read(1))  # a client does not speak before it has its answer
        self._note(now=1)
        try:
            await asyncio.wait({act, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not act.done():
                self._note(gave_up=1)
                return False
            with suppress(OSError):
                act.result()
            return connection.keep and not gone.done()
        finally:
            self._note(now=-1)
            for task in (act, gone):
                task.cancel()
            await asyncio.gather(act, gone, return_exceptions=True)

    def _act(self, body: dict[str, Any]) -> Act:
        if not body:
            self.health_checks += 1
            return self.models
        if body["messages"][-1]["content"] in _PROBES:
            self.probes.append(body)
            return self.probe
        self.requests.append(body)
        return self.script.pop(0) if self.script else self.then

    def _note(self, *, connections: int = 0, now: int = 0, gave_up: int = 0) -> None:
        with self._changed:
            self.connections += connections
            self._now += now
            self.gave_up += gave_up
            self.most_connections = max(self.most_connections, self.connections)
            self.most_at_once = max(self.most_at_once, self._now)
            self._changed.notify_all()


@contextmanager
def serve_faults(
    *script: Act, then: Act | None = None, probe: Act | None = None, models: Act | None = None, down: bool = False
) -> Iterator[FaultyServer]:
    """A server in a thread.

    Args:
        script: what it does with the first requests, in the order in which they come.
        then: what it does with all further ones.
        probe: what it does with clients' questions at start.
        models: what it answers to GET: its health.
        down: it does not listen yet.
    """
    listed = json.dumps({"object": "list", "data": [{"id": "toy"}]}).encode()
    server = FaultyServer(script, then or said("5"), probe or said("Hi"), models or sent(listed))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        if not down:
            server.come_up()
        yield server
    finally:
        server.stop()
        thread.join()


def _bound(port: int) -> socket.socket:
    """A port that nobody else gets and that refuses connections until somebody listens."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", port))
    return held
