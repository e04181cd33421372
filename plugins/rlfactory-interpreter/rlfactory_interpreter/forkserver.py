"""The fork server of the interpreters: its settings, and the guards that it can enable."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rlfactory_core import errors
from rlfactory_core.errors import BackendError
from rlfactory_core.workers.forkserver import ForkServer
from rlfactory_interpreter.limits import MIB, InterpreterLimits
from rlfactory_interpreter.packages import Reads, files_of

# `rlfactory_core` is only a path here: its own module would stay visible to the code.
_BOOT = (
    "import sys, types; core = sys.modules['rlfactory_core'] = types.ModuleType('rlfactory_core'); "
    "core.__path__ = [{core!r}]; sys.path[0] = {folder!r}; from sandbox.program import main; del sys.path[0]; main()"
)
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # many interpreters share the machine
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # otherwise each thread takes 64 MB of address space
    "MPLBACKEND": "Agg",
}


def forkserver(limits: InterpreterLimits, preload: Sequence[str], reads: Reads) -> partial[ForkServer]:
    """Makes fork servers whose program is `sandbox.program`. A process gets a control connection and one for output."""
    settings = {
        "limits": {
            "memory": int(limits.memory_mb * MIB),
            "file": int(limits.file_mb * MIB),
            "open_files": limits.open_files,
        },
        "cpu_s": limits.cpu_s,
        "scratch": int(limits.scratch_mb * MIB),
        "entries": limits.scratch_entries,
        "threads": limits.threads,
        "preload": list(preload),
        "packages": files_of((*preload, *reads.packages)),
        "readable": [os.path.abspath(path) for path in reads.files],
    }
    boot = _BOOT.format(core=str(Path(errors.__file__).parent), folder=str(Path(__file__).parent))
    return partial(ForkServer, "code", ("-s", "-X", "utf8", "-c", boot, json.dumps(settings)), _ENVIRONMENT)


def missing_guards() -> Mapping[str, str]:
    """The guards that this platform lacks, with reasons. A process tries to enable all of them.

    Raises:
        BackendError: the process does not start.
    """
    server = forkserver(InterpreterLimits(), (), Reads())()
    control, other = socket.socketpair()
    try:
        with control, other, server.fork(other.fileno(), other.fileno()):
            other.close()
            message = control.makefile("rb").readline()
        if not message:
            raise BackendError(f"code_interpreter: Python does not start. {server.log()}")
        missing: Mapping[str, str] = json.loads(message)["missing"]
        return missing
    finally:
        server.close()
