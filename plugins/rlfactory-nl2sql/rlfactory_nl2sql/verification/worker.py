"""The program of a worker: it limits itself, and runs one job after another until its connection is closed.

Workers run only this plugin's code, but with SQL that may be hostile. The limits are for the databases' engines.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import socket
import time
import traceback
from dataclasses import dataclass
from typing import Any, Protocol

from rlfactory_core.errors import RlfactoryError
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.verification.connections import Connections
from rlfactory_nl2sql.verification.frames import BUG, CLOCK, FAILED, RESULT, SECONDS, TAKEN, Frame, pack, receive
from rlfactory_nl2sql.verification.large import LargeBytes, load_job

_MIB = 1 << 20
_FILE_BYTES = 256 * _MIB  # SQLite sorts large results in unnamed files: in memory no deadline would stop it
_OPEN_FILES = 256
_MOMENT_S = 0.01  # a shift of the deadline that is not worth a message


class Job(Protocol):
    """Work for a worker. The job and its result are pickled."""

    def run(self, connections: Connections) -> Any: ...


@dataclass(frozen=True, slots=True)
class Request:
    job: Job
    seconds: float


def serve(connection: socket.socket, memory_mb: int) -> None:
    """Limit this process, and run jobs until the other side closes the connection."""
    _confine(memory_mb)
    kept, times = LargeBytes(), _Times(connection)
    connections = Connections(times.clock)
    while (frame := receive(connection)) is not None:
        request: Request = load_job(frame[1], kept)
        times.begin(request.seconds)
        connection.sendall(pack(*_answer(request.job, connections)))


class _Times:
    """Tells the client when a job's time begins, and until when it has."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._latest = self._told = 0.0
        self._first = True

    def begin(self, seconds: float) -> None:
        self._latest, self._told = time.monotonic() + seconds, 0.0
        if self._first:
            self._connection.sendall(pack(TAKEN, b""))
        self._first = False

    def clock(self, seconds: float) -> None:
        ends = min(time.monotonic() + seconds, self._latest)
        if abs(ends - self._told) > _MOMENT_S:
            self._told = ends
            self._connection.sendall(pack(CLOCK, SECONDS.pack(ends - time.monotonic())))


def _answer(job: Job, connections: Connections) -> Frame:
    """The boundary that turns any failure of a job into an answer."""
    try:
        return RESULT, pickle.dumps(job.run(connections), pickle.HIGHEST_PROTOCOL)
    except RlfactoryError as error:
        return FAILED, pickle.dumps(error)
    except MemoryError:
        connections.close()
        return FAILED, pickle.dumps(QueryError(Failure.MEMORY, "The query needs more memory than it may have."))
    except RecursionError:
        return FAILED, pickle.dumps(QueryError(Failure.ERROR, "The query is nested too deeply."))
    except Exception:  # noqa: BLE001 - the boundary that the docstring names
        return BUG, traceback.format_exc().encode()


def _confine(memory_mb: int) -> None:
    used = _address_space()
    limits = {
        resource.RLIMIT_AS: used + memory_mb * _MIB,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: _FILE_BYTES,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
    }
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS does not limit the address space
            resource.setrlimit(limit, (least, least))


def _address_space() -> int:
    """The size of this process's address space in bytes, or an estimate."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 256 * _MIB
