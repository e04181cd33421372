"""The fork server of the interpreters: its settings, and its guards, which ``rlfactory doctor`` reports."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import rlfactory_sandbox
from rlfactory_sandbox import ForkServer
from rlfactory_sandbox.guards import Confinement

from rlfactory_core.errors import BackendError
from rlfactory_core.plugins.diagnostics import Check, DoctorRequest
from rlfactory_interpreter.limits import MIB, InterpreterLimits
from rlfactory_interpreter.packages import files_of

# `rlfactory_sandbox` is only a path here: its own module loads the client, which would stay visible to the code.
_BOOT = (
    "import sys, types; sandbox = sys.modules['rlfactory_sandbox'] = types.ModuleType('rlfactory_sandbox'); "
    "sandbox.__path__ = {path!r}; sys.path[0] = {folder!r}; from sandbox.program import main; del sys.path[0]; main()"
)
GUARDS = ("files", "memory", "network", "processes")
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # many interpreters share the machine
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # otherwise each thread takes 64 MB of address space
    "MPLBACKEND": "Agg",
}


def forkserver(
    limits: InterpreterLimits, preload: Sequence[str] = (), packages: Sequence[str] = (), readable: Sequence[str] = ()
) -> ForkServer:
    """Its program is `sandbox.program`. A process gets a connection and a descriptor for output.

    Args:
        preload: modules that it imports.
        packages: more modules that the code may import.
        readable: files and directories that the code may read besides these and the system's libraries.
    """
    confinement = Confinement(
        int(limits.memory_mb * MIB),
        int(limits.file_mb * MIB),
        limits.open_files,
        readable=[os.path.abspath(path) for path in readable],
        packages=files_of((*preload, *packages)),
    )
    settings = {
        "confinement": asdict(confinement),
        "cpu_s": limits.cpu_s,
        "scratch": int(limits.scratch_mb * MIB),
        "entries": limits.scratch_entries,
        "threads": limits.threads,
        "preload": list(preload),
    }
    boot = _BOOT.format(path=list(rlfactory_sandbox.__path__), folder=str(Path(__file__).parent))
    return ForkServer("code", ("-s", "-X", "utf8", "-c", boot, json.dumps(settings)), _ENVIRONMENT)


def missing_guards() -> Mapping[str, str]:
    """The guards that this platform lacks, with reasons. A process tries to enable all of them.

    Raises:
        BackendError: the process does not start.
    """
    server = forkserver(InterpreterLimits())
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


def diagnose(request: DoctorRequest) -> Iterator[Check]:
    """Report the guards that a new process could enable, and those that it could not."""
    missing = missing_guards()
    guarded = ", ".join(guard for guard in GUARDS if guard not in missing) or "nothing"
    lacking = "".join(f"; not {guard} ({reason})" for guard, reason in sorted(missing.items()))
    yield Check("note" if missing else "ok", "interpreter", f"the model's code is guarded: {guarded}{lacking}")
