"""The program of the processes that compare answers, and of the one from which they are forked.

sympy can compute without end on what a policy writes, such as 9^{9^{9^9}}. The kernel ends a process that has had its
seconds of CPU time for one comparison, so that neither a busy machine nor a C function without signals matters. The
processes only parse and compute: math-verify evaluates no names or calls of an answer.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import time
from typing import Any

from rlfactory_core.rewards.maths.compare import same

_MEMORY = 2 << 30  # bytes of address space of one process


def main() -> None:
    """Fork a process for each connection, and another if one has ended. Arguments: seconds of CPU time, descriptors."""
    cpu_s, *descriptors = map(int, sys.argv[1:])
    same(r"\frac{1}{2}", "0.5")  # loads what the processes need
    connections = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    forked = {_fork(connection, cpu_s): connection for connection in connections}
    while forked:
        pid, status = os.wait()
        connection = forked.pop(pid)
        if status:  # else the client has closed the connection
            late = os.waitstatus_to_exitcode(status) == -signal.SIGXCPU
            connection.sendall(line({"late": True} if late else {"lost": True}))
            forked[_fork(connection, cpu_s)] = connection


def line(message: dict[str, Any]) -> bytes:
    """A message as the client and the processes exchange it."""
    return json.dumps(message).encode() + b"\n"


def _fork(connection: socket.socket, cpu_s: int) -> int:
    if pid := os.fork():
        return pid
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with connection.makefile("rb") as lines:
            while asked := lines.readline():
                # Whole seconds, and one more for what the process has begun of the current one.
                resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + cpu_s + 1, -1))
                connection.sendall(line(_answered(json.loads(asked))))
    except BaseException:  # noqa: BLE001 it must not go on as a second parent
        os._exit(1)
    os._exit(0)


def _answered(asked: dict[str, Any]) -> dict[str, Any]:
    """Whether an answer is one of the golds; ``error``: it cannot be computed."""
    try:
        return {"same": any(same(gold, asked["answer"]) for gold in asked["golds"])}
    except (Exception, RecursionError) as error:  # noqa: BLE001 sympy may raise anything for what a policy writes
        return {"same": False, "error": f"{type(error).__name__}: {error}"[:200]}
