"""The program of a worker, which confines itself and runs one job after another, and the messages that it sends.

Workers run only this plugin's code, but with SQL that may be hostile. The limits are for the databases' engines.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from rlfactory_core.errors import RlfactoryError
from rlfactory_core.workers.guards import enable
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.verification.connections import Connections
from rlfactory_nl2sql.verification.encoding import encode

SIZE = struct.Struct(">I")  # of a message, which follows
NUMBER = struct.Struct(">I")  # an order to the fork server: with a connection, fork a worker for it; without, kill it

_MIB = 1 << 20
_FILE_BYTES = 256 * _MIB  # SQLite sorts large results in unnamed files: in memory no deadline would stop it
_OPEN_FILES = 256
_MOMENT_S = 0.01  # a shift of the deadline that is not worth a message


class Job(Protocol):
    """Work for a worker. The job is pickled; its result is of types that `encoding.encode` knows.

    If it has a ``ref``, the worker can reach that database. If its ``ends_soon`` is true, it never counts as slow.
    """

    def run(self, connections: Connections) -> Any: ...


@dataclass(frozen=True, slots=True)
class Access:
    """What a worker may reach: folders that it may read, and whether it may connect to servers."""

    folders: frozenset[str] = frozenset()
    connects: bool = False

    def __or__(self, other: Access) -> Access:
        return Access(self.folders | other.folders, self.connects or other.connects)

    def enforce(self, memory_mb: int) -> dict[str, str]:
        """Confine this process to it and its directory for good, with this memory beyond what Python needs.

        Returns the missing guards, with reasons.
        """
        limits = {"memory": _address_space() + memory_mb * _MIB, "file": _FILE_BYTES, "open_files": _OPEN_FILES}
        return enable(limits, os.getcwd(), [*filter(None, sys.path), *self.folders], connects=self.connects)


@dataclass(frozen=True, slots=True)
class Request:
    """A job for a worker, the only message to it. It comes pickled; all answers are made by `encoding.encode`."""

    job: Job
    seconds: float
    secrets: dict[str, str]  # environment variables that the URL of the job's database names
    access: Access  # the same for all jobs of a worker


@dataclass(frozen=True, slots=True)
class Confined:
    """The worker begins its first job; the guards that this platform lacks, with reasons."""

    missing: dict[str, str]


@dataclass(frozen=True, slots=True)
class Clock:
    """The preparations are over, and the job has this much time from now on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """A job's result. If it failed, its `RlfactoryError` is sent instead."""

    result: Any


@dataclass(frozen=True, slots=True)
class Bug:
    """A job failed because of a bug in this plugin."""

    trace: str


def message(body: bytes) -> bytes:
    return SIZE.pack(len(body)) + body


def serve(connection: socket.socket, memory_mb: int) -> None:
    """Run jobs until the other side closes the connection; confine this process before the first one."""
    latest = told = 0.0

    def clock(seconds: float) -> None:
        nonlocal told
        ends = min(time.monotonic() + seconds, latest)
        if abs(ends - told) > _MOMENT_S:
            told = ends
            connection.sendall(message(encode(Clock(ends - time.monotonic()))))

    connections, confined = Connections(clock), False
    stream = connection.makefile("rb")
    while (request := _received(stream)) is not None:
        os.environ.update(request.secrets)
        if not confined:
            connection.sendall(message(encode(Confined(request.access.enforce(memory_mb)))))
        confined, latest, told = True, time.monotonic() + request.seconds, 0.0
        connection.sendall(message(_answer(request.job, connections)))


def _received(stream: BinaryIO) -> Request | None:
    """Wait for the next request; None if the other side is gone."""
    size = stream.read(SIZE.size)
    if len(size) < SIZE.size:
        return None
    request: Request = pickle.loads(stream.read(*SIZE.unpack(size)))  # noqa: S301 - from the process that it works for
    return request


def _answer(job: Job, connections: Connections) -> bytes:
    """The boundary that turns any failure of a job into an answer."""
    try:
        return encode(Done(job.run(connections)))
    except RlfactoryError as error:
        return encode(error)
    except MemoryError:
        connections.close()
        return encode(QueryError(Failure.MEMORY, "The query needs more memory than it may have."))
    except RecursionError:
        return encode(QueryError(Failure.ERROR, "The query is nested too deeply."))
    except Exception:  # noqa: BLE001 - the boundary that the docstring names
        return encode(Bug(traceback.format_exc()))


def _address_space() -> int:
    """The size of this process's address space in bytes, or an estimate."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 256 * _MIB
