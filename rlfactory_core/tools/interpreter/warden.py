"""The warden's process, as seen from here: how it is started, what it is told, and what is cleaned up after it."""

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

from rlfactory_core.errors import BackendError
from rlfactory_core.tools.interpreter.limits import MIB, InterpreterLimits
from rlfactory_core.tools.interpreter.sandbox import scratch

_log = logging.getLogger(__name__)

_BOOT = "import sys; sys.path[0] = {folder!r}; from sandbox.{module} import main; del sys.path[0]; main()"
_FOLDER = "rlfactory-code-"
_LOG = "warden.log"
_SAID = 2000  # characters of the warden's last words
_YOUNG_S = 60.0  # a folder's age within which its warden may be about to start
# All that an interpreter gets of this process's environment, where secrets may be.
_PASSED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # the same code gives the same output in every trajectory and run
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",  # many interpreters share the machine
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # else each thread takes 64 MB of address space
    "MPLBACKEND": "Agg",
}


@dataclass(frozen=True, slots=True)
class Warden:
    """One warden; see `sandbox.warden` for what it does."""

    process: subprocess.Popen[bytes]
    connection: socket.socket  # non-blocking
    folder: Path  # holds the interpreters' directories
    client: int  # the process that started it: a fork of that needs its own


def settings(limits: InterpreterLimits, preload: Sequence[str], readable: Sequence[str]) -> dict[str, Any]:
    """What a warden is told, its folder apart."""
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
        "readable": [os.path.abspath(path) for path in readable],
    }


def start_warden(told: Mapping[str, Any]) -> Warden:
    """Start one; whether it works out shows with the first interpreter.

    Raises:
        OSError: no process or no folder can be made.
    """
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER)).resolve()
    connection, other = socket.socketpair()
    arguments = (str(other.fileno()), json.dumps({**told, "folder": str(folder)}))
    with other, (folder / _LOG).open("wb") as log:
        fcntl.flock(log, fcntl.LOCK_EX)  # held by the warden, as its standard output, for as long as it lives
        process = subprocess.Popen(  # noqa: S603
            _command("warden", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=_environment(),
            pass_fds=(other.fileno(),),
            start_new_session=True,
        )
    connection.settimeout(0.0)
    return Warden(process, connection, folder, os.getpid())


def last_words(warden: Warden) -> str:
    """The end of what it wrote; empty where it had nothing to say."""
    try:
        return (warden.folder / _LOG).read_text(errors="replace")[-_SAID:]
    except OSError:
        return ""


def clean_up(folder: Path) -> None:
    """Remove what a warden leaves behind that was killed or never began; nothing where it did so itself."""
    try:
        if folder.exists():
            scratch.remove(str(folder))
    except OSError:
        _log.warning("%s of a lost code interpreter cannot be removed", folder, exc_info=True)


def unguarded() -> Mapping[str, str]:
    """The guards that this platform lacks, with reasons: found out by a process that puts them all up.

    Raises:
        BackendError: it does not run.
    """
    limits = json.dumps(settings(InterpreterLimits(), (), ())["limits"])
    with tempfile.TemporaryDirectory(prefix="rlfactory-guards-") as folder:
        done = subprocess.run(  # noqa: S603
            _command("guards", limits), cwd=folder, env=_environment(), capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise BackendError(f"code_interpreter: Python does not start. {done.stderr[-_SAID:]}")
    missing: Mapping[str, str] = json.loads(done.stdout)
    return missing


def _command(module: str, *arguments: str) -> Sequence[str]:
    boot = _BOOT.format(folder=str(Path(__file__).parent), module=module)
    return (sys.executable, "-s", "-X", "utf8", "-c", boot, *arguments)


def _environment() -> Mapping[str, str]:
    return {**{name: os.environ[name] for name in _PASSED_ON if name in os.environ}, **_ENVIRONMENT}


def _sweep() -> None:
    """Remove the folders of wardens that were killed together with their clients."""
    for log in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*/{_LOG}"):
        try:
            if time.time() - log.stat().st_mtime < _YOUNG_S:
                continue
            with log.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its warden lives, or it is another user's
            continue
        clean_up(log.parent)
