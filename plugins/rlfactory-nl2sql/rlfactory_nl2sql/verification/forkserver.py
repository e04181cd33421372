"""The fork server: imports all that workers need, forks them, and ends them.

A fork takes a few milliseconds and shares the memory of imported modules, so a worker that hangs is replaced without
delay for the queries behind it. Only the fork server knows and waits for the process ids, so no signal can reach a
wrong process. When its client ends or closes the connection, it kills all workers and ends.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import shutil
import signal
import socket

from sqlglot import parse_one

from rlfactory_core.workers.guards import die_with_parent
from rlfactory_nl2sql.databases import sqlite  # noqa: F401 - for the workers, which import other kinds when needed
from rlfactory_nl2sql.verification import jobs, judging  # noqa: F401 - with all imports of jobs
from rlfactory_nl2sql.verification.worker import NUMBER, serve

_LOOK_S = 1.0  # between checks that the client lives: its forks may keep the connection open


def main(descriptor: int, memory_mb: int, nice: int) -> None:
    """Follow the orders that arrive on the connection ``descriptor``, until it is closed.

    ``nice`` is by how much the workers' priority is lower than this process's.
    """
    os.nice(nice)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client handles Ctrl-C
    parse_one("SELECT 1", dialect="sqlite")  # sqlglot imports a dialect at its first use
    gc.freeze()  # otherwise the workers' first garbage collection would copy the shared memory
    client = os.getppid()
    workers: dict[int, int] = {}  # number -> process id
    with socket.socket(fileno=descriptor) as control:
        try:
            while os.getppid() == client:
                readable = select.select([control], [], [], _LOOK_S)[0]
                _reap(workers)
                if readable and not _follow(control, workers, memory_mb):
                    break
        finally:
            for process in workers.values():
                os.kill(process, signal.SIGKILL)
            shutil.rmtree(os.getcwd(), ignore_errors=True)  # the workers' folder; the client may have been killed


def _follow(control: socket.socket, workers: dict[int, int], memory_mb: int) -> bool:
    """Follow one order; False if the connection is closed."""
    order, descriptors, _, _ = socket.recv_fds(control, NUMBER.size, 1)
    if not order:
        return False
    (number,) = NUMBER.unpack(order)
    if not descriptors and number in workers:
        os.kill(workers[number], signal.SIGKILL)
    if descriptors:
        connection = socket.socket(fileno=descriptors[0])
        with connection, contextlib.suppress(OSError):  # fork failed; the client sees the connection close
            forkserver = os.getpid()
            process = os.fork()
            if not process:
                _become_worker(control, connection, memory_mb, forkserver)
            workers[number] = process
    return True


def _become_worker(control: socket.socket, connection: socket.socket, memory_mb: int, forkserver: int) -> None:
    status = 1
    try:
        die_with_parent()
        if os.getppid() != forkserver:  # it has just ended
            return
        control.close()
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        serve(connection, memory_mb)
        status = 0
    finally:
        os._exit(status)


def _reap(workers: dict[int, int]) -> None:
    while workers:
        process, _ = os.waitpid(-1, os.WNOHANG)
        if not process:
            return
        for number in [number for number, known in workers.items() if known == process]:
            del workers[number]
