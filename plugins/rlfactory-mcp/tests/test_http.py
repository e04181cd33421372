"""Servers behind an address: both HTTP transports, and what a failed request does to the calls beside it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from mcp_calls import OpenedServers, opened, servers
from mcp_http import McpHttp, serving

from rlfactory_core.errors import BackendError, ToolArgumentsError, ToolUnavailableError

pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")


@pytest.fixture
def server() -> Iterator[McpHttp]:
    with serving() as server:
        yield server


def start_error(**keys: Any) -> str:
    with pytest.raises(BackendError) as caught:
        opened(servers(it=keys), None)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("kind", [{}, {"type": "http"}])
def test_streamable_http(server: McpHttp, events: bool, kind: dict[str, str]) -> None:
    server.answers_as_events = events

    async def work(it: OpenedServers) -> None:
        texts = [str(n) for n in range(20)]
        assert await asyncio.gather(*(it.call("echo", text=text) for text in texts)) == texts

    opened(servers(it={"url": server.url("/mcp"), **kind}), work)
    assert server.deleted == list(server.sessions)  # the session was ended in order


@pytest.mark.parametrize("kind", [{}, {"type": "sse"}])
def test_the_older_transport_is_found_by_its_refusal(server: McpHttp, kind: dict[str, str]) -> None:
    async def work(it: OpenedServers) -> None:
        texts = [str(n) for n in range(20)]
        assert await asyncio.gather(*(it.call("echo", text=text) for text in texts)) == texts

    opened(servers(it={"url": server.url("/sse"), **kind}), work)
    assert ("POST", "/sse") in [(method, path) for method, path, _ in server.requests] or kind


def test_headers_are_sent_with_their_variables(server: McpHttp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "abc")

    async def work(it: OpenedServers) -> None:
        assert await it.call("header", name="Authorization") == "Bearer abc"

    headers = {"Authorization": "Bearer ${KEY}"}
    opened(servers(it={"url": server.url("/mcp"), "headers": headers}), work)
    opened(servers(it={"url": server.url("/sse"), "headers": headers}), work)


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_request_that_fails_is_the_infra_fault_of_its_call_alone(server: McpHttp, code: int) -> None:
    async def work(it: OpenedServers) -> None:
        beside = [asyncio.ensure_future(it.call("sleep", seconds=0.3)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(ToolUnavailableError, match=f"HTTP {code}"):
            await it.call("status", code=code)
        assert await asyncio.gather(*beside) == [""] * 5

    opened(servers(it={"url": server.url("/mcp")}), work)
    assert len(server.sessions) == 1


@pytest.mark.parametrize(
    ("kind", "text"),
    [("text/html", "<html>busy</html>"), ("application/json", '{"jsonrpc": '), ("application/json", "7")],
)
def test_an_answer_that_is_no_message_is_an_infra_fault_without_a_traceback(
    server: McpHttp, kind: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(it: OpenedServers) -> None:
        with pytest.raises(ToolUnavailableError, match="did not answer"):
            await it.call("page", kind=kind, text=text)
        assert await it.call("echo", text="x") == "x"

    opened(servers(it={"url": server.url("/mcp")}), work)
    assert not [record for record in caplog.records if record.exc_info]


def test_arguments_that_the_server_refuses_with_a_status(server: McpHttp) -> None:
    async def work(it: OpenedServers) -> None:
        with pytest.raises(ToolArgumentsError, match="as told"):
            await it.call("status", code=400, error=-32602)

    opened(servers(it={"url": server.url("/mcp")}), work)


def test_a_session_that_the_server_forgot_is_made_anew(server: McpHttp) -> None:
    async def work(it: OpenedServers) -> None:
        (before,) = server.sessions
        server.sessions.clear()
        with pytest.raises(ToolUnavailableError):
            await it.call("echo", text="x")
        assert await it.call("echo", text="x") == "x"
        assert server.sessions
        assert before not in server.sessions

    opened(servers(it={"url": server.url("/mcp")}), work)


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
def test_a_server_that_goes_away_and_comes_back(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlfactory_mcp.servers._RESTART_WAIT_S", 0.3)

    async def work(it: OpenedServers) -> None:
        assert await it.call("echo", text="x") == "x"
        running.close()
        with pytest.raises(ToolUnavailableError):
            await it.call("echo", text="x")
        with serving(McpHttp(server.port)):
            await it.until(it.is_back)
            await it.source.close()

    with ExitStack() as running:
        server = running.enter_context(serving())
        opened(servers(it={"url": server.url(path)}), work)


def test_a_lost_stream_is_opened_again_before_the_next_call(server: McpHttp) -> None:
    async def work(it: OpenedServers) -> None:
        (before,) = server.streams
        sleeping = asyncio.ensure_future(it.call("sleep", seconds=1))
        await it.until(_has_request(server, 4))
        server.drop_streams()
        with pytest.raises(ToolUnavailableError):
            await sleeping
        assert await it.call("echo", text="x") == "x"
        assert before not in server.streams

    opened(servers(it={"url": server.url("/sse"), "type": "sse"}), work)


def _has_request(server: McpHttp, posts: int) -> Any:
    async def has() -> bool:
        return sum(method == "POST" for method, _, _ in server.requests) >= posts

    return has


def test_a_call_that_hangs_is_cut_and_others_go_on(server: McpHttp) -> None:
    async def work(it: OpenedServers) -> None:
        await it.cut("sleep", seconds=1)
        assert await it.call("echo", text="x") == "x"

    opened(servers(it={"url": server.url("/mcp")}), work)
    assert len(server.sessions) == 1


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_status_at_the_start_is_said_at_once(server: McpHttp, status: int) -> None:
    server.refuse_with = status
    text = start_error(url=server.url("/mcp?key=a-long-secret"))
    assert f"MCP server 'it' does not start: HTTP {status}." in text
    assert f"Address: {server.url('/mcp')}" in text
    assert "secret" not in text
    assert all(method == "POST" for method, _, _ in server.requests)


def test_an_address_that_speaks_neither(server: McpHttp) -> None:
    server.only_sse = True
    text = start_error(url=server.url("/mcp"))
    assert "streamable HTTP: HTTP 405; SSE: " in text
    assert "405" in text.partition("SSE: ")[2]


def test_nobody_listens_there(server: McpHttp) -> None:
    with serving() as gone:
        url = gone.url("/mcp")
    refused = start_error(url=url)
    assert "does not start: ConnectError" in refused
    assert "start the server, or correct its url" in refused
    assert "does not start: " in start_error(url=url, type="sse")


def test_a_server_that_never_answers(server: McpHttp) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        assert "it did not answer within 0.3 s (start_timeout)" in start_error(url=url, start_timeout=0.3)
