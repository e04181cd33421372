"""Requests and answers in JSON-RPC, whatever a server writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlfactory_mcp.rpc import Peer, RpcError, parsed

RESULT = {"content": [{"type": "text", "text": "x"}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["id", "method", "result", "error"]), inner),
)


class Line:
    """A server's end of the connection."""

    def __init__(self) -> None:
        self.sent: list[Mapping[str, Any]] = []
        self.peer = Peer(self.sent.append)

    async def start(self) -> tuple[asyncio.Task[Any], int]:
        """A call under way, and its number."""
        task = asyncio.ensure_future(self.peer.request("tools/call", {"name": "t", "arguments": {}}))
        await asyncio.sleep(0)
        return task, self.sent[-1]["id"]


def run(work: Callable[[Line], Awaitable[None]]) -> None:
    async def main() -> None:
        await work(Line())

    asyncio.run(main())


def test_answers_find_their_calls_in_any_order_also_with_numbers_as_text() -> None:
    async def work(line: Line) -> None:
        (first, one), (second, two) = await line.start(), await line.start()
        line.peer.take({"id": two, "result": {**RESULT, "n": 2}})
        line.peer.take({"id": str(one), "result": {**RESULT, "n": 1}})
        assert [(await first)["n"], (await second)["n"]] == [1, 2]

    run(work)


def test_a_call_that_is_cancelled_is_taken_back_and_its_late_answer_dropped() -> None:
    async def work(line: Line) -> None:
        task, number = await line.start()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert line.sent[-1]["method"] == "notifications/cancelled"
        assert line.sent[-1]["params"] == {"requestId": number}
        line.peer.take({"id": number, "result": RESULT})

    run(work)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"error": {"code": -32602, "message": "no"}}, RpcError),
        ({"error": {"code": -1}}, RpcError),
        ({"error": "no"}, ValueError),
        ({"result": [1]}, ValueError),
    ],
)
def test_an_answer_without_a_result(message: dict[str, Any], error: type[Exception]) -> None:
    async def work(line: Line) -> None:
        task, number = await line.start()
        line.peer.take({"id": number, **message})
        with pytest.raises(error):
            await task

    run(work)


def test_calls_under_way_and_later_ones_learn_that_the_server_is_gone() -> None:
    async def work(line: Line) -> None:
        task, _ = await line.start()
        line.peer.lose()
        for call in (task, line.peer.request("tools/call", {})):
            with pytest.raises(RpcError) as caught:
                await call
            assert caught.value.lost
        assert len(line.sent) == 1

    run(work)


def test_a_server_s_own_requests_are_answered() -> None:
    async def work(line: Line) -> None:
        line.peer.take({"id": "s-1", "method": "ping"})
        line.peer.take({"id": 2, "method": "sampling/createMessage", "params": {}})
        line.peer.take({"method": "notifications/message", "params": {}})
        assert [reply["id"] for reply in line.sent] == ["s-1", 2]
        assert line.sent[0]["result"] == {}
        assert line.sent[1]["error"]["code"] == -32601

    run(work)


@pytest.mark.parametrize("text", [b"not json", b"[]", b"7", b'{"id": 3}', b"[" * 100_000, b"\xff"])
def test_lines_that_are_no_messages(text: bytes) -> None:
    assert parsed(text) is None


@pytest.mark.slow
@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_line_raises(text: bytes) -> None:
    async def take() -> None:
        message = parsed(text)
        if message is not None:
            Peer(lambda _: None).take(message)

    asyncio.run(take())
