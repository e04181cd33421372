"""The program of a pool's processes: the fork server's, and the worker's, which confines itself and answers jobs."""

from __future__ import annotations

import importlib
import json
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any, BinaryIO

from .guards import Confinement, enable
from .supervisor import Supervisor

HEAD = 8  # bytes before a message, with its length
_CONNECTION = 3  # the descriptor that the client gives
_PYTHON = 256 << 20  # estimated bytes of address space of a process, where the system does not tell

Program = Callable[[], Callable[[bytes], bytes]]
"""Makes what answers the jobs of one process; it may keep what it needs again."""


def framed(message: bytes) -> bytes:
    """A message as a pool and its workers exchange it."""
    return len(message).to_bytes(HEAD, "big") + message


def main(settings: dict[str, Any]) -> None:
    """Serve the client, a `pool.Pool`. The fork server imports the program, so that its forks share that memory."""
    supervisor = Supervisor(lambda: _work(program))
    os.nice(settings["nice"])
    module, _, name = settings["program"].partition(":")
    program: Program = getattr(importlib.import_module(module), name)
    supervisor.serve()


def _work(program: Program) -> None:
    with socket.socket(fileno=_CONNECTION) as connection, connection.makefile("rb") as stream:
        wanted = Confinement(**json.loads(_next(stream) or b"{}"))
        missing = enable(replace(wanted, memory=wanted.memory + _address_space()), os.getcwd())
        connection.sendall(framed(json.dumps(missing).encode()))
        answer = program()
        while (job := _next(stream)) is not None:
            connection.sendall(framed(answer(job)))


def _next(stream: BinaryIO) -> bytes | None:
    """The client's next message; None if it has closed the connection."""
    head = stream.read(HEAD)
    return stream.read(int.from_bytes(head, "big")) if len(head) == HEAD else None


def _address_space() -> int:
    """The size of this process's address space in bytes, or an estimate."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return _PYTHON
