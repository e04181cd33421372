"""The server and its client, against each other on loopback, and each against what goes wrong."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from retrieval import memory, search
from rlfactory_search import server
from rlfactory_search.retrievers import Hit, make_retriever

from rlfactory_core import serving
from rlfactory_core.errors import BackendError, ToolUnavailableError, UsageError

FACTS = ("Mira Tolvan\nMira Tolvan works for Bracken Ltd.", "Bracken Ltd\nBracken Ltd is based in Oslune.")
SERVE = "from rlfactory_search.commands import search; search(['serve', *__import__('sys').argv[1:]])"


@pytest.fixture
def served(write_corpus: Callable[..., Path]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server in a process of its own, and the process."""
    command = [sys.executable, "-c", SERVE, "--corpus", str(write_corpus(*FACTS)), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Serving on http://127.0.0.1:"), line
            yield line.split()[2], process
        finally:
            process.kill()


def test_a_client_finds_what_the_server_has_and_ctrl_c_ends_it(served: tuple[str, subprocess.Popen[str]]) -> None:
    url, process = served

    async def go() -> list[list[Hit]]:
        retriever = make_retriever("http", url=url)
        await retriever.open()
        try:
            assert await retriever.search(["\ud800 nothing like it"], 2) == [[]]
            many = await asyncio.gather(*(retriever.search(["Mira Tolvan", "Oslune"], 2) for _ in range(40)))
            assert all(found == many[0] for found in many)
            return many[0]
        finally:
            await retriever.close()

    found = asyncio.run(go())
    assert found == search("bm25", ["Mira Tolvan", "Oslune"], 2, corpus=memory(*FACTS))
    assert httpx.get(url.replace("/retrieve", "/health")).json() == {"status": "ok"}
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert out == "Stopped.\n"
    assert "Traceback" not in err


class Fixed:
    """A retriever whose answer is known."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[tuple[list[str], int]] = []

    async def open(self) -> None: ...

    async def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        self.asked.append((list(queries), k))
        if self.error:
            raise self.error
        return [[Hit("7", "title\ntext", 1.5)] for _ in queries]

    async def close(self) -> None: ...


def post(retriever: Fixed, body: Any) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=server.create_app(retriever))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post("/retrieve", content=body if isinstance(body, bytes) else json.dumps(body))

    return asyncio.run(go())


def test_the_answers_are_search_r1s() -> None:
    retriever, document = Fixed(), {"id": "7", "contents": "title\ntext"}
    with_scores = post(retriever, {"queries": ["a", "b"], "topk": 5, "return_scores": True})
    assert with_scores.json() == {"result": [[{"document": document, "score": 1.5}]] * 2}
    assert post(retriever, {"queries": ["a"], "topk": None}).json() == {"result": [[document]]}
    assert retriever.asked == [(["a", "b"], 5), (["a"], 3)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        ([], "expected an object"),
        ({}, "'queries' must be a list"),
        ({"queries": []}, "at least one text"),
        ({"queries": "one"}, "'queries' must be a list"),
        ({"queries": [1]}, "'queries' must be a list"),
        ({"queries": ["a"] * 5000}, "5000 texts"),
        ({"queries": ["a"] * 400, "topk": 1000}, "more than 65,536 documents"),
        (b'{"queries": ["\\ud800"]}', "'queries' must be a list"),
        (b'{"queries": ["a"], "topk": ' + b"9" * 5000 + b"}", "not JSON"),
        ({"queries": ["a"], "topk": 0}, "'topk' is 0"),
        ({"queries": ["a"], "topk": "3"}, "'topk' is '3'"),
        ({"queries": ["a"], "return_scores": 1}, "'return_scores' is 1"),
    ],
)
def test_bad_input_is_refused_with_a_reason(body: Any, expected: str) -> None:
    response = post(Fixed(), body)
    assert response.status_code == 422
    assert expected in response.json()["detail"]


def test_a_body_that_is_too_long_is_answered_413() -> None:
    response = post(Fixed(), b'{"queries": ["' + b"a" * (17 << 20) + b'"]}')
    assert response.status_code == 413
    assert "longer than 16,777,216 bytes" in response.json()["detail"]


def test_a_client_that_does_not_send_its_body_is_answered_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_BODY_S", 0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"queries": '
        await asyncio.Event().wait()

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        chunks = slow()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": await anext(chunks), "more_body": True}

        await server.create_app(Fixed())(scope, receive, send)

    async def go() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
            return await client.post("/retrieve", content=b"")

    response = asyncio.run(go())
    assert (response.status_code, response.headers["connection"]) == (408, "close")
    assert "took longer than" in response.json()["detail"]


def test_a_client_that_goes_away_within_its_body_is_no_error(served: tuple[str, subprocess.Popen[str]]) -> None:
    url, process = served
    address = url.removeprefix("http://").removesuffix("/retrieve").partition(":")
    for _ in range(3):
        with socket.create_connection((address[0], int(address[2]))) as client:
            client.sendall(b"POST /retrieve HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
            client.shutdown(socket.SHUT_WR)
            while client.recv(1024):
                pass
    process.send_signal(signal.SIGINT)
    assert "Traceback" not in process.communicate(timeout=120)[1]


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"])
def test_a_client_that_does_not_finish_its_head_is_closed(before: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_S", 0.5)

    async def go() -> None:
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(server.serve(Fixed(), "127.0.0.1", 0, address.set_result))
        port = int((await address).removesuffix("/retrieve").rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(60):
            writer.write(before)
            if before:
                await reader.readuntil(b'{"status":"ok"}')
            writer.write(b"POST /retrieve HTTP/1.1\r\nhost: x\r\nx-")
            assert await reader.read() == b""  # up to the end, which the server sets
        writer.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(go())


def test_a_backend_that_is_down_is_503() -> None:
    assert post(Fixed(ToolUnavailableError("away")), {"queries": ["a"]}).status_code == 503


def test_a_port_in_use_is_said() -> None:
    async def go() -> None:
        async with answering(b"{}") as url:
            await server.serve(Fixed(), "127.0.0.1", int(url.rsplit(":", 1)[1]), lambda address: None)

    with pytest.raises(UsageError, match=r"Cannot listen on 127.0.0.1:.*--port"):
        asyncio.run(go())


@asynccontextmanager
async def answering(*bodies: bytes | None, status: int = 200) -> AsyncIterator[str]:
    """A server that gives these bodies in turn, one a connection; None or nothing left: it never answers."""
    left = list(bodies)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(request.lower().split(b"content-length:")[1].split()[0]))
        body = left.pop(0) if left else None
        if body is not None:
            head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
            writer.close()
        else:
            await reader.read(-1)  # until the client goes away
            writer.close()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        await listener.wait_closed()


HELLO = json.dumps({"result": [[]]}).encode()


def search_after_open(*bodies: bytes | None, status: int = 200, deadline_s: float = 5.0) -> list[list[Hit]]:
    async def go() -> list[list[Hit]]:
        async with answering(*bodies, status=status) as url:
            retriever = make_retriever("http", url=url, deadline_s=deadline_s)
            try:
                await retriever.open()
                return await retriever.search(["a"], 3)
            finally:
                await retriever.close()

    return asyncio.run(go())


def test_numbers_as_ids_and_further_keys_are_taken() -> None:
    document = {"id": 3, "contents": "t\nx", "title": "t"}
    body = json.dumps({"result": [[{"document": document, "score": 2}]]}).encode()
    assert search_after_open(HELLO, body) == [[Hit("3", "t\nx", 2.0)]]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", "Search-R1's format.*KeyError"),
        (b"<html>", "Search-R1's format"),
        (b'{"result": [[{"id": "1"}]]}', "Search-R1's format"),
        (b'{"result": []}', "answered 0 of 1 queries"),
        (None, "no answer within 0.3 s"),
    ],
)
def test_what_goes_wrong_in_mid_run_is_a_fault_of_the_backend(body: bytes | None, expected: str) -> None:
    with pytest.raises(ToolUnavailableError, match=expected):
        search_after_open(HELLO, body, deadline_s=20 if body else 0.3)


def test_a_server_that_goes_away_is_a_fault_of_the_backend() -> None:
    async def go() -> None:
        async with answering(HELLO) as url:
            retriever = make_retriever("http", url=url)
            await retriever.open()
        try:
            await retriever.search(["a"], 3)
        finally:
            await retriever.close()

    with pytest.raises(ToolUnavailableError, match="cannot be reached"):
        asyncio.run(go())


def test_a_server_that_is_not_there_is_said_at_the_start() -> None:
    with pytest.raises(BackendError, match=r"HTTP status 500.*rlfactory search serve"):
        search_after_open(HELLO, status=500)
    with pytest.raises(BackendError, match=r"http://127.0.0.1:1/retrieve cannot be reached.*correct the address"):
        asyncio.run(make_retriever("http", url="http://127.0.0.1:1").open())


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="Expected http://HOST:PORT/retrieve"):
        make_retriever("http", url=url)
