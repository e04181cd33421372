"""The fork server as its client sees it: start it, configure it, clean up after it."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_core import errors
from rlfactory_core.errors import BackendError
from rlfactory_interpreter.limits import MIB, InterpreterLimits
from rlfactory_interpreter.packages import Reads, files_of
from rlfactory_interpreter.sandbox import scratch

_log = logging.getLogger(__name__)

# `rlfactory_core` is only a path here: its own module would stay visible to the code.
_BOOT = (
    "import sys, types; core = sys.modules['rlfactory_core'] = types.ModuleType('rlfactory_core'); "
    "core.__path__ = [{core!r}]; sys.path[0] = {folder!r}; from {module} import main; del sys.path[0]; main()"
)
_FOLDER = "rlfactory-code-"
_LOG = "forkserver.log"
_LOG_CHARS = 2000  # of the fork server's log, shown in errors
_MIN_AGE_S = 60.0  # a younger folder may belong to a fork server that is about to start
# The only variables of this process that an interpreter inherits. Others may hold secrets.
_INHERITED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # the same code gives the same output in every trajectory and run
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",  # many interpreters share the machine
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # otherwise each thread takes 64 MB of address space
    "MPLBACKEND": "Agg",
}


@dataclass(frozen=True, slots=True)
class ForkServer:
    """A running fork server. `sandbox.forkserver` is its program."""

    process: subprocess.Popen[bytes]
    connection: socket.socket  # non-blocking
    folder: Path  # holds the interpreters' directories
    client: int  # id of the process that started it; a fork of that process needs a fork server of its own


def settings(limits: InterpreterLimits, preload: Sequence[str], reads: Reads) -> dict[str, Any]:
    """The fork server's settings, without its folder."""
    return {
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


def start_forkserver(configuration: Mapping[str, Any]) -> ForkServer:
    """Start a fork server. If it fails while starting, the request for the first interpreter fails.

    Raises:
        OSError: the process or its folder cannot be created.
    """
    _remove_orphans()
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER)).resolve()
    connection, other = socket.socketpair()
    arguments = (str(other.fileno()), json.dumps({**configuration, "folder": str(folder)}))
    with other, (folder / _LOG).open("wb") as log:
        # The log becomes the fork server's standard output, so the lock is held as long as the fork server lives.
        fcntl.flock(log, fcntl.LOCK_EX)
        process = subprocess.Popen(  # noqa: S603
            _command("sandbox.forkserver", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=_environment(),
            pass_fds=(other.fileno(),),
            start_new_session=True,
        )
    connection.settimeout(0.0)
    return ForkServer(process, connection, folder, os.getpid())


def log_tail(forkserver: ForkServer) -> str:
    """The end of the fork server's log; empty if there is none."""
    try:
        return (forkserver.folder / _LOG).read_text(errors="replace")[-_LOG_CHARS:]
    except OSError:
        return ""


def remove_folder(folder: Path) -> None:
    """Remove the folder of a fork server that was killed or never started. Others remove their own."""
    try:
        if folder.exists():
            scratch.remove(str(folder))
    except OSError:
        _log.warning("cannot remove %s, the folder of a lost code interpreter", folder, exc_info=True)


def missing_guards() -> Mapping[str, str]:
    """The guards that this platform lacks, with reasons. A process tries to enable all of them.

    Raises:
        BackendError: the process does not start.
    """
    limits = json.dumps(settings(InterpreterLimits(), (), Reads())["limits"])
    with tempfile.TemporaryDirectory(prefix="rlfactory-guards-") as folder:
        done = subprocess.run(  # noqa: S603
            _command("rlfactory_core.workers.guards", limits),
            cwd=folder,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise BackendError(f"code_interpreter: Python does not start. {done.stderr[-_LOG_CHARS:]}")
    missing: Mapping[str, str] = json.loads(done.stdout)
    return missing


def _command(module: str, *arguments: str) -> Sequence[str]:
    core = Path(errors.__file__).parent
    boot = _BOOT.format(core=str(core), folder=str(Path(__file__).parent), module=module)
    return (sys.executable, "-s", "-X", "utf8", "-c", boot, *arguments)


def _environment() -> Mapping[str, str]:
    return {**{name: os.environ[name] for name in _INHERITED if name in os.environ}, **_ENVIRONMENT}


def _remove_orphans() -> None:
    """Remove the folders of fork servers that were killed together with their clients."""
    for log in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*/{_LOG}"):
        try:
            if time.time() - log.stat().st_mtime < _MIN_AGE_S:
                continue
            with log.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its fork server lives, or the folder is another user's
            continue
        remove_folder(log.parent)
