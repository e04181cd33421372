"""Messages between this process, its workers and their fork server: frames of a kind, a length and a body."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import BinaryIO

HEAD = struct.Struct(">cI")
ORDER = struct.Struct(">cII")  # to the fork server: what to do, the worker's number, the size of its `Access`

JOB = b"j"  # a pickled `Request`
TAKEN = b"t"  # the worker starts its first job
CLOCK = b"c"  # `SECONDS`: preparations are over, and the job has this much time from now on
RESULT = b"r"  # made by `encoding.encode`
FAILED = b"f"  # a `RlfactoryError`, likewise
BUG = b"b"  # a traceback

SECONDS = struct.Struct(">d")

START = b"s"  # comes with the worker's end of its connection, and followed by its `Access`
KILL = b"k"

Frame = tuple[bytes, bytes]

_AT_ONCE = 1 << 20  # bytes
_MOST = 1 << 30  # bytes of one frame; a worker cannot have more memory


def pack(kind: bytes, body: bytes) -> bytes:
    return HEAD.pack(kind, len(body)) + body


def receive(stream: BinaryIO) -> Frame | None:
    """Wait for the next frame; None if the other side is gone."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    kind, size = HEAD.unpack(head)
    body = stream.read(size)
    return (kind, body) if len(body) == size else None


async def next_frame(connection: socket.socket) -> Frame | None:
    """The next frame of a non-blocking connection; None if the other side is gone or sends no frames."""
    try:
        kind, size = HEAD.unpack(await _exactly(connection, HEAD.size))
        return (kind, await _exactly(connection, size)) if size <= _MOST else None
    except OSError:
        return None


async def _exactly(connection: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), bytearray()
    while len(data) < size:
        came = await loop.sock_recv(connection, min(size - len(data), _AT_ONCE))
        if not came:
            raise ConnectionError
        data += came
    return bytes(data)
