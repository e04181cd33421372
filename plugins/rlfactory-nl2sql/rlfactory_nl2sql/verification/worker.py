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

_MIB = 1 << 20
_FILE_BYTES = 256 * _MIB  # SQLite sorts large results in unnamed files: in memory no deadline would stop it
_OPEN_FILES = 256


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
    ends = 0.0

    def clock(seconds: float) -> None:
        connection.sendall(pack(CLOCK, SECONDS.pack(min(seconds, ends - time.monotonic()))))

    connections = Connections(clock)
    while (frame := receive(connection)) is not None:
        request: Request = pickle.loads(frame[1])  # noqa: S301 - from the client process
        ends = time.monotonic() + request.seconds
        connection.sendall(pack(TAKEN, b""))
        connection.sendall(pack(*_answer(request.job, connections)))


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
