"""Messages between this process, its workers and their fork server: frames of a kind, a length and a body."""

from __future__ import annotations

import asyncio
import socket
import struct

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

_AT_ONCE = 64 * 1024  # bytes
_MOST = 1 << 30  # bytes of one frame; a worker cannot have more memory


def pack(kind: bytes, body: bytes) -> bytes:
    return HEAD.pack(kind, len(body)) + body


def receive(connection: socket.socket) -> Frame | None:
    """Wait for the next frame; None if the other side is gone."""
    head = connection.recv(HEAD.size, socket.MSG_WAITALL)
    if len(head) < HEAD.size:
        return None
    kind, size = HEAD.unpack(head)
    body = bytearray(size)
    rest = memoryview(body)
    while rest:
        came = connection.recv_into(rest)
        if not came:
            return None
        rest = rest[came:]
    return kind, bytes(body)


class FrameReader:
    """Frames from a non-blocking connection. One read often brings several."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = bytearray()

    async def next(self) -> Frame | None:
        """Wait for the next frame; None if the other side is gone or sends no frames."""
        if not await self._has(HEAD.size):
            return None
        kind, size = HEAD.unpack_from(self._data)
        if size > _MOST:
            return None
        end = HEAD.size + size
        if not await self._has(end):
            return None
        body = bytes(memoryview(self._data)[HEAD.size : end])
        del self._data[:end]
        return kind, body

    async def _has(self, size: int) -> bool:
        """Read until there are ``size`` bytes; False if the other side is gone before."""
        loop = asyncio.get_running_loop()
        while len(self._data) < size:
            try:
                came = await loop.sock_recv(self._connection, max(_AT_ONCE, size - len(self._data)))
            except OSError:
                return False
            if not came:
                return False
            self._data += came
        return True
