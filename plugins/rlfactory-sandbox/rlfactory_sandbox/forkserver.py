"""A fork server as its client sees it: ask it for processes, end it, clean up after it. `supervisor` is its program."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import glob
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import folders

__all__ = ["ForkServer"]

_log = logging.getLogger(__name__)

_LOG = "forkserver.log"
_LOG_CHARS = 2000  # of the log's end, shown in errors
_MIN_AGE_S = 60.0  # a younger folder may belong to a fork server that is about to start
_STOP_S = 10.0  # for the fork server to clean up
# The only variables of this process that are handed on. Others may hold secrets.
_INHERITED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # the same work gives the same result in every process and run
    "PYTHONDONTWRITEBYTECODE": "1",
}


class ForkServer:
    """Forks processes from one that has loaded what they need. It is started with the first, and again if it is lost.

    It has a session of its own, so that Linux (``sched_autogroup``) shares the CPU fairly among fork servers.

    Args:
        name: what it is for; a part of its folder's name.
        arguments: of its Python. The program is a `supervisor.Supervisor`.
        environment: more variables for its processes.
    """

    def __init__(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._name, self._arguments, self._environment = f"rlfactory-{name}-", arguments, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._client = 0  # id of the process that started it; a fork of that process needs a fork server of its own

    def fork(self, *descriptors: int) -> socket.socket:
        """Fork a process that gets these descriptors. Returns its lifeline, non-blocking.

        If the fork server fails while it starts, or cannot fork, the other ends of the descriptors are closed.

        Raises:
            BlockingIOError: many requests are waiting; a later one succeeds.
            OSError: the fork server cannot be started.
        """
        ours = self._client == os.getpid()
        if self._process is None or not ours or self._process.poll() is not None:
            if self._process is not None and ours:
                _log.warning("the fork server %s… was lost; a new one is started", self._name)
            self.close()
            self._start()
        lifeline, end = socket.socketpair()
        lifeline.settimeout(0.0)
        with end, contextlib.ExitStack() as opened:
            opened.enter_context(lifeline)
            socket.send_fds(self._connection, [bytes((len(descriptors) + 1,))], [*descriptors, end.fileno()])
            opened.pop_all()
        return lifeline

    def log(self) -> str:
        """The end of the fork server's log; empty if there is none."""
        with contextlib.suppress(OSError):
            if self._process is not None:
                return Path(self._folder, _LOG).read_text(errors="replace")[-_LOG_CHARS:]
        return ""

    def close(self) -> None:
        """End the fork server and all its processes. In a fork of its client, only forget them."""
        process, self._process = self._process, None
        if process is not None:
            self._end(process, self._connection, self._folder)

    async def aclose(self) -> None:
        """`close` for an event loop. A process that is requested meanwhile is forked by a new fork server."""
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(self._end, process, self._connection, self._folder)

    def _end(self, process: subprocess.Popen[bytes], connection: socket.socket, folder: str) -> None:
        with connection:
            if self._client != os.getpid():
                process.returncode = 0  # nothing to wait for
                return
            try:
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(_STOP_S)
                connection.recv(1)  # nothing comes; it returns when the fork server has ended
            except TimeoutError:
                _log.error("the fork server %s… does not end, so it is killed", self._name)
            except OSError:  # it was lost
                pass
        process.kill()
        process.wait()
        with contextlib.suppress(OSError):  # most remove their own
            folders.remove(folder)

    def _start(self) -> None:
        _remove_orphans(self._name)
        self._client, self._folder = os.getpid(), os.path.realpath(tempfile.mkdtemp(prefix=self._name))
        self._connection, other = socket.socketpair()
        self._connection.settimeout(0.0)
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        with other, open(os.path.join(self._folder, _LOG), "wb") as log:
            # The log becomes the fork server's standard output, so the lock is held as long as the fork server lives.
            fcntl.flock(log, fcntl.LOCK_EX)
            self._process = subprocess.Popen(  # noqa: S603
                (sys.executable, *self._arguments),
                stdin=other.fileno(),
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**inherited, **_ENVIRONMENT, **self._environment},
                start_new_session=True,
            )


def _remove_orphans(prefix: str) -> None:
    """Remove the folders of fork servers that were killed together with their clients."""
    for folder in glob.iglob(os.path.join(tempfile.gettempdir(), f"{prefix}*")):
        with contextlib.suppress(OSError):  # its fork server lives, and holds the lock
            found = os.lstat(folder)
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > _MIN_AGE_S:
                with open(os.path.join(folder, _LOG), "ab") as log:  # made if they were killed before they made it
                    fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    folders.remove(folder)
