"""Calls over a pipe: which lines answer them, whatever a server writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlfactory_mcp.calls import PipeCalls
from rlfactory_mcp.compat import RpcError

RESULT = {"content": [{"type": "text", "text": "x"}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["id", "method", "result", "error"]), inner),
)


class Pipe:
    """A server's end of the pipe."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.calls = PipeCalls(self._write)

    def _write(self, data: bytes) -> None:
        self.written.extend(map(json.loads, data.splitlines()))

    async def start(self, name: str = "t") -> tuple[asyncio.Task[Any], int]:
        """A call under way, and its number."""
        task = asyncio.ensure_future(self.calls.call_tool(name, {}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return task, self.written[-1]["id"]

    def answer(self, **message: Any) -> bool:
        return self.calls.take(json.dumps({"jsonrpc": "2.0", **message}).encode())


def run(work: Callable[[Pipe], Awaitable[None]]) -> None:
    async def main() -> None:
        await work(Pipe())

    asyncio.run(main())


def test_answers_find_their_calls_in_any_order_also_with_numbers_as_text() -> None:
    async def work(pipe: Pipe) -> None:
        (first, one), (second, two) = await pipe.start(), await pipe.start()
        assert pipe.answer(id=two, result={**RESULT, "n": 2})
        assert pipe.answer(id=str(one), result={**RESULT, "n": 1})
        assert [(await first)["n"], (await second)["n"]] == [1, 2]

    run(work)


def test_calls_made_at_once_go_out_together() -> None:
    async def main() -> None:
        writes: list[bytes] = []
        calls = PipeCalls(writes.append)
        tasks = [asyncio.ensure_future(calls.call_tool("t", {"n": n})) for n in range(10)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        calls.lose()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(writes) == 1
        assert [json.loads(line)["params"]["arguments"]["n"] for line in writes[0].splitlines()] == list(range(10))

    asyncio.run(main())


def test_a_call_that_is_cancelled_is_taken_back_and_its_late_answer_dropped() -> None:
    async def work(pipe: Pipe) -> None:
        task, number = await pipe.start()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert pipe.written[-1]["method"] == "notifications/cancelled"
        assert pipe.written[-1]["params"] == {"requestId": number}
        assert pipe.answer(id=number, result=RESULT)

    run(work)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"error": {"code": -32602, "message": "no"}}, RpcError),
        ({"error": {"code": -1}}, RpcError),
        ({"error": "no"}, ValueError),
        ({"result": [1]}, ValueError),
        ({}, ValueError),
    ],
)
def test_an_answer_without_a_result(message: dict[str, Any], error: type[Exception]) -> None:
    async def work(pipe: Pipe) -> None:
        task, number = await pipe.start()
        assert pipe.answer(id=number, **message)
        with pytest.raises(error):
            await task

    run(work)


def test_calls_under_way_and_later_ones_learn_that_the_server_is_gone() -> None:
    async def work(pipe: Pipe) -> None:
        task, _ = await pipe.start()
        pipe.calls.lose()
        for call in (task, pipe.calls.call_tool("t", {})):
            with pytest.raises(RpcError) as caught:
                await call
            assert caught.value.connection_lost
        assert len(pipe.written) == 1

    run(work)


def test_what_the_session_asked_or_the_server_says_on_its_own_is_left_to_the_session() -> None:
    calls = PipeCalls(lambda _: None)
    for message in ({"id": 3, "result": {}}, {"id": "s-1", "method": "ping"}, {"method": "notifications/message"}, []):
        assert not calls.take(json.dumps(message).encode())
    assert not calls.take(b"not json")


@pytest.mark.slow
@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_line_raises(line: bytes) -> None:
    assert PipeCalls(lambda _: None).take(line) in (True, False)
