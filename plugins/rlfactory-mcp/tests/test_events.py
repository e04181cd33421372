"""Server-sent events on their way to the SDK: whole, unchanged, and none longer than it takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlfactory_mcp.http import fitting

EVENTS = ["event: endpoint\ndata: /message?id=1", "data: ä\u2028b", ": ping", 'id: 7\ndata: {"a":\ndata: 1}']


def pass_on(chunks: list[str]) -> list[str]:
    async def source() -> AsyncIterator[str]:
        for chunk in chunks:
            yield chunk

    async def collect() -> list[str]:
        return [event async for event in fitting(source())]

    return asyncio.run(collect())


@given(st.sampled_from(["\n", "\r\n"]), st.lists(st.integers(1, 200), max_size=20))
def test_events_pass_however_they_are_cut_into_chunks(line_end: str, cuts: list[int]) -> None:
    text = "".join(event.replace("\n", line_end) + 2 * line_end for event in EVENTS)
    places = [0, *sorted(cut for cut in set(cuts) if cut < len(text)), len(text)]
    passed = pass_on([text[begin:end] for begin, end in pairwise(places)])
    assert [event.replace("\r\n", "\n") for event in passed] == [f"{event}\n\n" for event in EVENTS]


def answer(**fields: object) -> str:
    message = {"jsonrpc": "2.0", **fields, "padding": "x" * (1 << 20)}
    return f"event: message\ndata: {json.dumps(message)}\n\n"


def test_an_answer_that_is_too_long_becomes_an_error_of_the_same_call() -> None:
    (event,) = pass_on([answer(id=5, result={})])
    message = json.loads(event.removeprefix("data: "))
    assert message["id"] == 5
    assert "too long (1,048," in message["error"]["message"]


@pytest.mark.parametrize("event", [answer(method="notify"), answer(id=5, method="ask"), "data: [" + "1" * (1 << 20)])
def test_what_is_too_long_and_no_answer_is_left_out(event: str) -> None:
    assert pass_on([event, "\n\n", "data: next\n\n"])[-1] == "data: next\n\n"
    assert len("".join(pass_on([event, "\n\n", "data: next\n\n"]))) < 100
