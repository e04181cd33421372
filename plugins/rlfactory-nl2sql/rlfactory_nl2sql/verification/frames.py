"""Messages between this process, its workers and their fork server: frames of a kind, a length and a body."""

from __future__ import annotations

import asyncio
import socket
import struct

HEAD = struct.Struct(">cI")
ORDER = struct.Struct(">cI")  # to the fork server: what to do, the worker's number

JOB = b"j"  # a pickled `Request`
TAKEN = b"t"  # the worker starts the job
CLOCK = b"c"  # `SECONDS`: preparations are over, and the job has this much time from now on
RESULT = b"r"  # pickled
FAILED = b"f"  # a pickled `RlfactoryError`
BUG = b"b"  # a traceback

SECONDS = struct.Struct(">d")

START = b"s"  # comes with the worker's end of its connection
KILL = b"k"

Frame = tuple[bytes, bytes]


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


async def receive_async(connection: socket.socket) -> Frame | None:
    """`receive` for a non-blocking connection."""
    head = await _exactly(connection, HEAD.size)
    if head is None:
        return None
    kind, size = HEAD.unpack(head)
    body = await _exactly(connection, size)
    return None if body is None else (kind, body)


async def _exactly(connection: socket.socket, size: int) -> bytes | None:
    loop = asyncio.get_running_loop()
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        try:
            came = await loop.sock_recv_into(connection, rest)
        except OSError:
            return None
        if not came:
            return None
        rest = rest[came:]
    return bytes(data)
