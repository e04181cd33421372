"""The program of the processes that compare answers, and of the fork server from which they are forked.

sympy can compute without end on what a policy writes, such as 9^{9^{9^9}}. The kernel ends a process that has had its
seconds of CPU time for one comparison, so that neither a busy machine nor a C function without signals matters.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import time
from functools import partial
from typing import Any

from rlfactory_core.rewards.maths.compare import same
from rlfactory_core.workers.guards import enable, python_files
from rlfactory_core.workers.supervisor import Supervisor, pack

_CONNECTION = 3  # the descriptor that the client gives


def main() -> None:
    """Serve the client; the first argument has the limits as JSON."""
    limits = json.loads(sys.argv[1])
    supervisor = Supervisor(partial(_work, limits))
    same(r"\frac{1}{2}", "0.5")  # loads what the processes need
    python_files(None)
    supervisor.serve()


def _work(limits: dict[str, int]) -> None:
    enable({"memory": limits["memory"], "file": 0, "open_files": 64}, os.getcwd(), ())
    with socket.socket(fileno=_CONNECTION) as connection, connection.makefile("rb") as lines:
        for line in lines:
            # Whole seconds, and one more for what the process has begun of the current one.
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + limits["cpu_s"] + 1, -1))
            connection.sendall(pack(_answered(json.loads(line))))


def _answered(asked: dict[str, Any]) -> dict[str, Any]:
    """Whether an answer is one of the golds; ``error``: it cannot be computed."""
    try:
        return {"same": any(same(gold, asked["answer"]) for gold in asked["golds"])}
    except (Exception, RecursionError) as error:  # noqa: BLE001 sympy may raise anything for what a policy writes
        return {"same": False, "error": f"{type(error).__name__}: {error}"[:200]}
