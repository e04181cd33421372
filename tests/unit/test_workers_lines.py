"""Lines of a worker: each arrives whole and once, and the end says why it came."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from rlfactory_core.workers.lines import LineReader


def heard(sent: list[bytes], most: int = 100, stop: bytes | None = None) -> list[Any]:
    """What a reader hands over of these pieces, of which it reads one after the other, and of the end after them."""

    async def read() -> list[Any]:
        came: list[Any] = []
        ours, theirs = socket.socketpair()
        ours.settimeout(0.0)
        ended = asyncio.Event()

        def on_line(line: bytes | bytearray) -> None:
            came.append(bytes(line))
            if line == stop:
                reader.close()

        def on_end(error: Exception) -> None:
            came.append(type(error))
            ended.set()

        reader = LineReader(ours, most, on_line, on_end)
        for piece in sent:
            with contextlib.suppress(BrokenPipeError):  # it reads no more
                theirs.sendall(piece)
            for _ in range(2):  # so that it is read
                await asyncio.sleep(0)
        theirs.close()
        if stop is None:
            await asyncio.wait_for(ended.wait(), 60.0)
        await asyncio.sleep(0)
        return came

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("sent", "came"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"on", b"e\ntw", b"o\n"], [b"one", b"two"]),
        ([b"\n", b"one\nnever ended"], [b"", b"one"]),
    ],
)
def test_lines_arrive_whole_however_they_are_cut(sent: list[bytes], came: list[bytes]) -> None:
    assert heard(sent) == [*came, EOFError]


def test_a_line_that_never_ends_is_no_longer_read() -> None:
    assert heard([b"one\n", b"x" * 60, b"x" * 60, b"\ntwo\n"]) == [b"one", ValueError]


def test_what_came_together_with_a_line_is_not_handed_over_after_a_close() -> None:
    assert heard([b"one\nstop\ntwo\n"], stop=b"stop") == [b"one", b"stop"]
