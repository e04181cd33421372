"""Where interpreter processes come from: the warden, started at the first need and again if it is lost."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.errors import BackendError
from rlfactory_core.tools.interpreter.limits import MIB, InterpreterLimits
from rlfactory_core.tools.interpreter.process import Process, connections
from rlfactory_core.tools.interpreter.sandbox import scratch

_log = logging.getLogger(__name__)

_START_S = 60.0  # for a process to be ready, the warden's own start and its preloading included
_STOP_S = 10.0  # for the warden to clean up
_BOOT = "import sys; sys.path[0] = {folder!r}; from sandbox.{module} import main; del sys.path[0]; main()"
_LOG = "warden.log"
_SAID = 2000  # characters of the warden's last words
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
class _Warden:
    process: subprocess.Popen[bytes]
    connection: socket.socket
    folder: Path  # holds the interpreters' directories
    client: int  # the process that started it: a fork of that needs its own


class Processes:
    """Starts interpreter processes, each confined as far as this platform lets it be.

    Args:
        preload: modules that are imported once, for all processes.
        readable: files and directories that the code may read, beside Python's own and the system's libraries.
    """

    def __init__(self, limits: InterpreterLimits, preload: Sequence[str], readable: Sequence[str]) -> None:
        self._limits = limits
        self._settings = _settings(limits, preload, readable)
        self._warden: _Warden | None = None

    async def start(self) -> tuple[Process, Mapping[str, str]]:
        """A process that is ready, and the guards that it has not, with reasons.

        Raises:
            BackendError: it does not start, with the reason.
        """
        try:
            process, descriptors = connections(self._limits.output_bytes)
        except OSError as error:
            raise BackendError(f"code_interpreter: no connection to a new process: {error}") from error
        try:
            await self._ask_for(descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        try:
            missing = await process.ready(_START_S)
        except asyncio.CancelledError:
            process.kill()
            raise
        if missing is None:
            ending = await process.end()
            reason = ending.error or self._last_words() or f"It ended ({ending.status}); are its limits too low?"
            raise BackendError(f"code_interpreter: a process did not start. {reason}")
        return process, missing

    async def close(self) -> None:
        """End the warden and, with it, every process. A later `start` starts a new one."""
        warden, self._warden = self._warden, None
        if warden is None or warden.client != os.getpid():
            return
        warden.connection.close()
        clock = asyncio.get_running_loop().time
        ends = clock() + _STOP_S
        while warden.process.poll() is None:
            if clock() > ends:
                _log.error("the warden of the code interpreters does not end; it is killed")
                warden.process.kill()
                ends += _STOP_S
            await asyncio.sleep(0.002)
        _clean_up(warden)

    async def _ask_for(self, descriptors: tuple[int, ...]) -> None:
        while True:
            try:
                socket.send_fds(self._live_warden().connection, [b"n"], descriptors)
                return
            except BlockingIOError:  # many at once; it comes after them
                await asyncio.sleep(0.005)
            except OSError as error:
                raise BackendError(f"code_interpreter: the warden is gone. {self._last_words()}") from error

    def _live_warden(self) -> _Warden:
        warden = self._warden
        if warden is not None and warden.client == os.getpid():
            if warden.process.poll() is None:
                return warden
            _log.warning("the warden of the code interpreters was lost; a new one is started")
            warden.connection.close()
            _clean_up(warden)
        self._warden = _start_warden(self._settings)
        return self._warden

    def _last_words(self) -> str:
        try:
            return (self._warden.folder / _LOG).read_text(errors="replace")[-_SAID:] if self._warden else ""
        except OSError:
            return ""


def unguarded() -> Mapping[str, str]:
    """The guards that this platform lacks, with reasons: found out by a process that puts them all up.

    Raises:
        BackendError: it does not run.
    """
    with tempfile.TemporaryDirectory(prefix="rlfactory-code-") as folder:
        command = _command("guards", json.dumps(_settings(InterpreterLimits(), (), ())["limits"]))
        done = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise BackendError(f"code_interpreter: Python does not start. {done.stderr[-_SAID:]}")
    missing: Mapping[str, str] = json.loads(done.stdout)
    return missing


def _settings(limits: InterpreterLimits, preload: Sequence[str], readable: Sequence[str]) -> dict[str, Any]:
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


def _start_warden(settings: Mapping[str, Any]) -> _Warden:
    folder = Path(tempfile.mkdtemp(prefix="rlfactory-code-")).resolve()
    connection, other = socket.socketpair()
    arguments = (str(other.fileno()), json.dumps({**settings, "folder": str(folder)}))
    with other, (folder / _LOG).open("wb") as log:
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
    return _Warden(process, connection, folder, os.getpid())


def _command(module: str, *arguments: str) -> Sequence[str]:
    boot = _BOOT.format(folder=str(Path(__file__).parent), module=module)
    return (sys.executable, "-s", "-X", "utf8", "-c", boot, *arguments)


def _environment() -> Mapping[str, str]:
    return {**{name: os.environ[name] for name in _PASSED_ON if name in os.environ}, **_ENVIRONMENT}


def _clean_up(warden: _Warden) -> None:
    """What a warden leaves behind that was killed or never began."""
    try:
        if warden.folder.exists():
            scratch.remove(str(warden.folder))
    except OSError:
        _log.warning("%s of a lost code interpreter cannot be removed", warden.folder, exc_info=True)
