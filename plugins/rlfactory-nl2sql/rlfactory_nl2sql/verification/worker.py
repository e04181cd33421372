"""The program of the worker processes: the fork server's, and the worker's, which confines itself and runs jobs.

The fork server imports all that workers need. A fork takes a few milliseconds and shares the memory of imported
modules, so a worker that hangs is replaced without delay for the queries behind it.

Workers run only this plugin's code, but with SQL that may be hostile. The limits are for the databases' engines.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
import traceback
from contextlib import suppress
from typing import Any, Protocol

from rlfactory_sandbox.guards import Confinement, enable
from rlfactory_sandbox.supervisor import Supervisor
from sqlglot import parse_one

from rlfactory_core.errors import RlfactoryError
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases import sqlite  # noqa: F401 - for the workers, which import other kinds when needed
from rlfactory_nl2sql.verification import jobs  # noqa: F401 - with all imports of jobs
from rlfactory_nl2sql.verification.connections import Connections
from rlfactory_nl2sql.verification.encoding import encode

_MIB = 1 << 20
_FILE_BYTES = 256 * _MIB  # SQLite sorts large results in unnamed files: in memory no deadline would stop it
_OPEN_FILES = 256
_MOMENT = 0.1  # share of the seconds that are left; a smaller shift of the deadline is not worth a message


class Job(Protocol):
    """Work for a worker. The job is pickled; its result is of types that `encoding.encode` knows.

    If it has a ``ref``, the worker can reach that database. If its ``ends_soon`` is true, it never counts as slow.
    """

    def run(self, connections: Connections) -> Any: ...


Access = frozenset[str]
"""What a worker may reach: folders that it may read; `NETWORK` if it may connect to servers."""
NETWORK = "network"


def main() -> None:
    """Run the fork server. Its arguments are a worker's memory beyond what Python needs, and what `os.nice` takes."""
    supervisor = Supervisor(_work)
    os.nice(int(sys.argv[2]))
    parse_one("SELECT 1", dialect="sqlite")  # sqlglot imports a dialect at its first use
    supervisor.serve()


def message(kind: str, value: Any) -> bytes:
    """A line for the client, which reads it in `process.Worker`.

    - ``started``: the guards that this platform lacks, with reasons. The worker is ready.
    - ``clock``: the seconds that the job has from now on. Its preparations are over.
    - ``slow``: a query has done more work than most do.
    - ``done``: the job's result; ``failed``: its `RlfactoryError`; ``bug``: the traceback of any other exception.
    """
    return encode((kind, value)) + b"\n"


def _work() -> None:
    """Confine this process to its folder and what it may reach, and run jobs until the client closes the connection.

    All that comes is pickled, by the process that this one works for: the worker's `Access`, then
    jobs. Before each is the place of its content, with the content if it is new; after it are the seconds that it has,
    those of its first query, if the client has started its clock, and the variables that its database's URL names.
    """
    contents: dict[int, bytes] = {-1: b""}
    latest = told = 0.0

    def clock(seconds: float) -> None:
        nonlocal told
        ends = min(time.monotonic() + seconds, latest)
        left = ends - time.monotonic()
        if abs(ends - told) > _MOMENT * left:
            told = ends
            connection.sendall(message("clock", left))

    def slow() -> None:
        connection.sendall(message("slow", 0.0))

    connection = socket.socket(fileno=3)
    stream, connections = connection.makefile("rb"), Connections(clock, slow)
    access = pickle.load(stream)  # noqa: S301
    memory = _address_space() + int(sys.argv[1]) * _MIB
    readable = (*filter(None, sys.path), *(access - {NETWORK}))
    missing = enable(Confinement(memory, _FILE_BYTES, _OPEN_FILES, readable, NETWORK in access), os.getcwd())
    connection.sendall(message("started", missing))
    with suppress(EOFError):
        while True:
            slot, content = pickle.load(stream)  # noqa: S301
            if content:
                contents[slot] = content
            job, seconds, query_s, variables = pickle.load(stream)  # noqa: S301
            os.environ.update(variables)
            now = time.monotonic()
            latest, told = now + seconds, now + query_s if query_s else 0.0
            connections.content, connections.prepares = contents[slot], query_s > 0
            connection.sendall(_answer(job, connections))


def _answer(job: Job, connections: Connections) -> bytes:
    """The boundary that turns any failure of a job into an answer."""
    try:
        return message("done", job.run(connections))
    except RlfactoryError as error:
        return message("failed", error)
    except MemoryError:
        connections.close()
        return message("failed", QueryError(Failure.MEMORY, "The query needs more memory than it may have."))
    except RecursionError:
        return message("failed", QueryError(Failure.ERROR, "The query is nested too deeply."))
    except Exception:  # noqa: BLE001 - the boundary that the docstring names
        return message("bug", traceback.format_exc())


def _address_space() -> int:
    """The size of this process's address space in bytes, or an estimate."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 256 * _MIB
