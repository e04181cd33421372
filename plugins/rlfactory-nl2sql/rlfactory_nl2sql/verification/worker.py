"""The program of a worker, which confines itself and runs one job after another, and the frames of its connection.

Workers run only this plugin's code, but with SQL that may be hostile. The limits are for the databases' engines.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import time
import traceback
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from rlfactory_core.errors import RlfactoryError
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.verification.access import Access
from rlfactory_nl2sql.verification.connections import Connections
from rlfactory_nl2sql.verification.encoding import encode
from rlfactory_nl2sql.verification.large import LargeBytes, load_job

HEAD = struct.Struct(">cI")
ORDER = struct.Struct(">cII")  # to the fork server: what to do, the worker's number, the size of its `Access`
SECONDS = struct.Struct(">d")

# The kinds of frames.
JOB = b"j"  # a pickled `Request`
TAKEN = b"t"  # the worker starts its first job
CLOCK = b"c"  # `SECONDS`: preparations are over, and the job has this much time from now on
RESULT = b"r"  # made by `encoding.encode`
FAILED = b"f"  # a `RlfactoryError`, likewise
BUG = b"b"  # a traceback

# The orders to the fork server.
START = b"s"  # comes with the worker's end of its connection, and followed by its pickled `Access`
KILL = b"k"

Frame = tuple[bytes, bytes]

_AT_ONCE = 1 << 16  # bytes
_MOST = 1 << 30  # bytes of one frame; a worker cannot have more memory
_MOMENT_S = 0.01  # a shift of the deadline that is not worth a message


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


class Frames:
    """The frames that come on a non-blocking connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._came = connection, bytearray()

    async def next(self) -> Frame | None:
        """The next one; None if the other side is gone or sends no frames."""
        try:
            kind, size = HEAD.unpack(await self._first(HEAD.size))
            return (kind, await self._first(size)) if size <= _MOST else None
        except OSError:
            return None

    async def _first(self, size: int) -> bytes:
        loop, came = asyncio.get_running_loop(), self._came
        while len(came) < size:
            more = await loop.sock_recv(self._connection, _AT_ONCE)
            if not more:
                raise ConnectionError
            came += more
        first = bytes(came[:size])
        del came[:size]
        return first


class Job(Protocol):
    """Work for a worker. The job is pickled; its result is of types that `encoding.encode` knows.

    If it has a ``ref``, the worker can reach that database.
    """

    def run(self, connections: Connections) -> Any: ...


@dataclass(frozen=True, slots=True)
class Request:
    job: Job
    seconds: float
    secrets: dict[str, str]  # environment variables that the URL of the job's database names


def serve(connection: socket.socket, access: Access, memory_mb: int) -> None:
    """Confine this process, and run jobs until the other side closes the connection."""
    missing = access.enforce(memory_mb)
    kept, times = LargeBytes(), _Times(connection, missing)
    connections = Connections(times.clock)
    stream = connection.makefile("rb")
    while (frame := receive(stream)) is not None:
        request: Request = load_job(frame[1], kept)
        os.environ.update(request.secrets)
        times.begin(request.seconds)
        connection.sendall(pack(*_answer(request.job, connections)))


class _Times:
    """Tells the client when a job's time begins, and until when it has; at the first job also the missing guards."""

    def __init__(self, connection: socket.socket, missing: dict[str, str]) -> None:
        self._connection, self._missing = connection, missing
        self._latest = self._told = 0.0
        self._first = True

    def begin(self, seconds: float) -> None:
        self._latest, self._told = time.monotonic() + seconds, 0.0
        if self._first:
            self._connection.sendall(pack(TAKEN, json.dumps(self._missing).encode()))
        self._first = False

    def clock(self, seconds: float) -> None:
        ends = min(time.monotonic() + seconds, self._latest)
        if abs(ends - self._told) > _MOMENT_S:
            self._told = ends
            self._connection.sendall(pack(CLOCK, SECONDS.pack(ends - time.monotonic())))


def _answer(job: Job, connections: Connections) -> Frame:
    """The boundary that turns any failure of a job into an answer."""
    try:
        return RESULT, encode(job.run(connections))
    except RlfactoryError as error:
        return FAILED, encode(error)
    except MemoryError:
        connections.close()
        return FAILED, encode(QueryError(Failure.MEMORY, "The query needs more memory than it may have."))
    except RecursionError:
        return FAILED, encode(QueryError(Failure.ERROR, "The query is nested too deeply."))
    except Exception:  # noqa: BLE001 - the boundary that the docstring names
        return BUG, traceback.format_exc().encode()
