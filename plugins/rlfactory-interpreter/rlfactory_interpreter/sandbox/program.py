"""The program of the interpreters' fork server, and of an interpreter before it runs any code."""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from functools import partial
from typing import Any

from rlfactory_sandbox.guards import Confinement, enable, python_files
from rlfactory_sandbox.supervisor import Supervisor, pack

from . import cells, scratch

_CONTROL, _NO_INPUT, _OUTPUT = 3, 4, 5  # an interpreter's descriptors, besides the standard ones


def main() -> None:
    """Serve the client; the first argument is made by `rlfactory_interpreter.forkserver`."""
    settings = json.loads(sys.argv[1])
    supervisor = Supervisor(partial(_interpret, settings), partial(_exceeded, settings))
    for name in settings["preload"]:
        importlib.import_module(name)
    python_files(tuple(settings["confinement"]["packages"]))  # once, instead of in every process
    supervisor.serve()


def _exceeded(settings: dict[str, Any], pid: int, folder: str) -> str:
    if scratch.exceeds(folder, settings["scratch"], settings["entries"]):
        return "scratch"
    return "threads" if _threads(pid) > settings["threads"] else ""


def _threads(pid: int) -> int:
    """A process's number of threads; 0 if it is unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[17])
    except (OSError, ValueError, IndexError):
        return 0


def _interpret(settings: dict[str, Any]) -> None:
    os.setsid()  # the code may send signals to its own group of processes
    os.dup2(4, _OUTPUT)  # the client gives two descriptors
    os.dup2(0, _NO_INPUT)
    for standard in (1, 2):
        os.dup2(_OUTPUT, standard)
    sys.path.insert(0, "")  # the code can import modules that it writes
    sys.argv = [""]
    missing = enable(Confinement(**settings["confinement"]), os.getcwd())
    for name in [name for name in sys.modules if name.partition(".")[0] in (__package__, "rlfactory_sandbox")]:
        del sys.modules[name]  # the model's code may use this name
    connection = socket.socket(fileno=_CONTROL)
    connection.sendall(pack({"missing": missing}))
    cells.serve(connection, _NO_INPUT, _OUTPUT, settings["cpu_s"])
