"""The programs of the worker processes: the fork server, and the worker, which confines itself and runs jobs.

The fork server imports all that workers need. A fork takes a few milliseconds and shares the memory of imported
modules, so a worker that hangs is replaced without delay for the queries behind it. Only the fork server knows and
waits for the process ids, so no signal can reach a wrong process. When its client ends or closes the connection, it
kills all workers and ends.

Workers run only this plugin's code, but with SQL that may be hostile. The limits are for the databases' engines.
"""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from typing import Any, Protocol

from sqlglot import parse_one

from rlfactory_core.errors import RlfactoryError
from rlfactory_core.workers.guards import die_with_parent, enable
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases import sqlite  # noqa: F401 - for the workers, which import other kinds when needed
from rlfactory_nl2sql.verification import jobs  # noqa: F401 - with all imports of jobs
from rlfactory_nl2sql.verification.connections import Connections
from rlfactory_nl2sql.verification.encoding import encode

_LOOK_S = 1.0  # between checks that the client lives: its forks may keep the connection open
_MIB = 1 << 20
_FILE_BYTES = 256 * _MIB  # SQLite sorts large results in unnamed files: in memory no deadline would stop it
_OPEN_FILES = 256
_DESCRIPTORS = 1 << 16  # of the fork server, at most
_MOMENT_S = 0.01  # a shift of the deadline that is not worth a message


class Job(Protocol):
    """Work for a worker. The job is pickled; its result is of types that `encoding.encode` knows.

    If it has a ``ref``, the worker can reach that database. If its ``ends_soon`` is true, it never counts as slow.
    """

    def run(self, connections: Connections) -> Any: ...


Access = frozenset[str]
"""What a worker may reach: folders that it may read; `NETWORK` if it may connect to servers."""
NETWORK = "network"


def main(descriptor: int, memory_mb: int, nice: int) -> None:
    """Run the fork server, with a priority that is lower by ``nice``.

    On the connection ``descriptor`` come pairs of sockets, each for a new worker: the worker's connection, and one that
    ends the worker when the client shuts it.
    """
    os.nice(nice)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client handles Ctrl-C
    parse_one("SELECT 1", dialect="sqlite")  # sqlglot imports a dialect at its first use
    gc.freeze()  # otherwise the workers' first garbage collection would copy the shared memory
    client = os.getppid()
    ending: list[int] = []
    with socket.socket(fileno=descriptor) as control, selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        try:
            while os.getppid() == client:
                for key, _ in selector.select(_LOOK_S):
                    if key.data is not None:
                        selector.unregister(key.fd)
                        os.close(key.fd)
                        os.kill(key.data, signal.SIGKILL)
                        ending.append(key.data)
                    elif not _start(control, selector, memory_mb):
                        return
                ending = [process for process in ending if os.waitpid(process, os.WNOHANG) == (0, 0)]
        finally:
            for key in selector.get_map().values():
                if key.data is not None:
                    os.kill(key.data, signal.SIGKILL)
            shutil.rmtree(os.getcwd(), ignore_errors=True)  # the workers' folder; the client may have been killed


def _start(control: socket.socket, selector: selectors.BaseSelector, memory_mb: int) -> bool:
    """Fork the worker that the client wants now; False if the client has closed the connection."""
    _, descriptors, _, _ = socket.recv_fds(control, 1, 2)
    if len(descriptors) < 2:
        return False
    connection, lifeline = descriptors
    forkserver, process = os.getpid(), None
    with suppress(OSError):  # fork failed; the client sees the connection close
        process = os.fork()
    if process == 0:
        _become_worker(connection, memory_mb, forkserver)
    os.close(connection)
    if process is None:
        os.close(lifeline)
    else:
        selector.register(lifeline, selectors.EVENT_READ, process)
    return True


def _become_worker(descriptor: int, memory_mb: int, forkserver: int) -> None:
    status = 1
    try:
        die_with_parent()
        if os.getppid() != forkserver:  # it has just ended
            return
        os.dup2(descriptor, 0)
        os.dup2(1, 2)  # standard output leads nowhere
        os.closerange(3, _DESCRIPTORS)  # what belongs to the fork server and other workers
        with socket.socket(fileno=0) as connection:
            serve(connection, memory_mb)
        status = 0
    finally:
        os._exit(status)


def message(kind: str, value: Any) -> bytes:
    """A line for the client, which reads it in `process.Worker`.

    - ``started``: the guards that this platform lacks, with reasons. The worker is ready.
    - ``clock``: the seconds that the job has from now on. Its preparations are over.
    - ``done``: the job's result; ``failed``: its `RlfactoryError`; ``bug``: the traceback of any other exception.
    """
    return encode((kind, value)) + b"\n"


def serve(connection: socket.socket, memory_mb: int) -> None:
    """Confine this process, and run jobs until the client closes the connection.

    All that comes is pickled, by the process that this one works for: the worker's `Access`, then
    jobs, each with its seconds and the environment variables that its database's URL names.
    """
    latest = told = 0.0

    def clock(seconds: float) -> None:
        nonlocal told
        ends = min(time.monotonic() + seconds, latest)
        if abs(ends - told) > _MOMENT_S:
            told = ends
            connection.sendall(message("clock", ends - time.monotonic()))

    stream, connections = connection.makefile("rb"), Connections(clock)
    connection.sendall(message("started", _confine(pickle.load(stream), memory_mb)))  # noqa: S301
    with suppress(EOFError):
        while True:
            job, seconds, variables = pickle.load(stream)  # noqa: S301
            os.environ.update(variables)
            latest, told = time.monotonic() + seconds, 0.0
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


def _confine(access: Access, memory_mb: int) -> dict[str, str]:
    """Confine this process for good to its directory and ``access``, with this memory beyond what Python needs.

    Returns the missing guards, with reasons.
    """
    limits = {"memory": _address_space() + memory_mb * _MIB, "file": _FILE_BYTES, "open_files": _OPEN_FILES}
    readable = [*filter(None, sys.path), *(access - {NETWORK})]
    return enable(limits, os.getcwd(), readable, connects=NETWORK in access)


def _address_space() -> int:
    """The size of this process's address space in bytes, or an estimate."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 256 * _MIB
