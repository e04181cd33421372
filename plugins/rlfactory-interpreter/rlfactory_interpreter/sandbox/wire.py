"""Messages between the processes: JSON objects, each preceded by its length."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

BROKEN = 70  # exit status of an interpreter that cannot continue
HEAD = struct.Struct(">I")


def pack(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return HEAD.pack(len(body)) + body


def reply(call: int, *, failed: bool) -> bytes:
    """What an interpreter sends before it stops itself at the end of a call."""
    return pack({"call": call, "failed": failed})


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """Wait for the next message; None if the other side is gone."""
    head = _exactly(connection, HEAD.size)
    body = None if head is None else _exactly(connection, HEAD.unpack(head)[0])
    return None if body is None else json.loads(body)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)
