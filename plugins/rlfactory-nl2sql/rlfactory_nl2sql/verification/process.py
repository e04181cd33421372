"""The client's side of the workers and their fork server: start, run one job at a time, end."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from rlfactory_core.errors import BackendError, RlfactoryError
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases.limiting import LATEST, SLOW
from rlfactory_nl2sql.verification.encoding import decode
from rlfactory_nl2sql.verification.worker import Access, Job

_log = logging.getLogger(__name__)

_BOOT = (
    "import sys; sys.path[:] = sys.argv[4:]; from rlfactory_nl2sql.verification.worker import main; "
    "main(*map(int, sys.argv[1:4]))"
)
_START_S = 60.0  # for a worker to start, including the fork server
_MOMENT_S = 0.05  # a query is not slow before
_GRACE_S = 0.03  # for an engine to notice the deadline
_STOP_S = 10.0  # for the fork server to end
_ERROR_S = 0.5  # for a failing fork server to write its error
_ERROR_CHARS = 2000  # of its error output, shown in errors
_AT_ONCE = 1 << 16  # bytes
_MOST = 1 << 30  # bytes of one message; a worker cannot have more memory
_MESSAGES = {"started": dict, "clock": float, "done": object, "failed": RlfactoryError, "bug": str}
# The only variables of this process that a worker inherits. Others may hold secrets.
_INHERITED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ")


class WorkerLost(Exception):  # noqa: N818 - never leaves the pool
    """The process has ended. ``began``: whether it had begun a job."""

    def __init__(self, *, began: bool) -> None:
        super().__init__()
        self.began = began


class WorkerBug(RuntimeError):  # noqa: N818 - a bug, not a user's error
    """A job failed because of a bug in this plugin; the log has the traceback."""


class Worker:
    """One worker process."""

    def __init__(
        self, connection: socket.socket, lifeline: socket.socket, access: Access, on_slow: Callable[[], None]
    ) -> None:
        """``on_slow`` is called when ``slow_from`` is over."""
        self.access = access
        self.usable = True  # for another job; False while a job runs
        self.slow_from: float | None = None  # time of the event loop; None before the running job started its clock
        self._connection, self._lifeline, self._on_slow = connection, lifeline, on_slow
        self._started = False
        self._came = bytearray()  # of its messages

    async def run(self, job: Job, seconds: float) -> Any:
        """Run a job and return its result.

        Raises:
            QueryError: with `Failure.DEADLINE`: it did not end in time. The worker must be killed.
            WorkerLost: its process ended.
            WorkerBug: the job failed because of a bug in this plugin.
            RlfactoryError: what the job raised.
        """
        loop, most, ref = asyncio.get_running_loop(), seconds, getattr(job, "ref", None)
        variables = {name: os.environ[name] for name in (ref.variables if ref else ()) if name in os.environ}
        request = pickle.dumps((job, seconds, variables), pickle.HIGHEST_PROTOCOL)
        self.usable = False
        try:
            async with asyncio.timeout(seconds + _GRACE_S if self._started else _START_S) as limit:
                with suppress(OSError):  # the process is gone; reading the answer shows it too
                    await loop.sock_sendall(self._connection, request)
                while (message := await self._next())[0] in ("started", "clock"):
                    if message[0] == "started":
                        self._started, wait = True, seconds
                        _warn(frozenset(message[1].items()))
                    else:
                        seconds = min(most, message[1])
                        wait = LATEST * seconds  # the engine ends a query itself, on a busy machine later
                        if not getattr(job, "ends_soon", False):
                            self._count_as_slow(max(_MOMENT_S, SLOW * seconds))
                    limit.reschedule(loop.time() + wait + _GRACE_S)
        except TimeoutError:
            if self._started:
                raise QueryError(Failure.DEADLINE, f"The query took longer than {seconds:.3g} s.") from None
            raise WorkerLost(began=False) from None
        except (OSError, EOFError):
            raise WorkerLost(began=self._started) from None
        except (ValueError, TypeError) as error:  # so the worker runs more than this plugin's code
            raise QueryError(Failure.ERROR, f"The query damaged the database's engine: {error}.") from None
        finally:
            self.slow_from = None
        self.usable, (kind, value) = True, message
        if kind == "failed":
            raise value
        if kind == "bug":
            _log.error("A job failed.\n%s", value.strip())
            raise WorkerBug(f"A bug in rlfactory-nl2sql: {value.strip().rpartition(chr(10))[2]}")
        return value

    def end(self) -> None:
        """End the process at once, and with it what it runs."""
        with suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the process. No `run` may be in progress."""
        self._lifeline.close()
        self._connection.close()

    def _count_as_slow(self, seconds: float) -> None:
        """From so many seconds on."""
        loop = asyncio.get_running_loop()
        self.slow_from = loop.time() + seconds
        loop.call_later(seconds, self._on_slow)

    async def _next(self) -> tuple[str, Any]:
        """The worker's next message; raises `OSError` or `EOFError` if it is gone, `ValueError` if it is no message."""
        loop, sought = asyncio.get_running_loop(), 0
        while (end := self._came.find(b"\n", sought)) < 0:
            sought = len(self._came)
            if sought > _MOST:
                raise ValueError(f"an answer of more than {_MOST} bytes")
            more = await loop.sock_recv(self._connection, _AT_ONCE)
            if not more:
                raise EOFError
            self._came += more
        found = decode(self._came[:end])
        del self._came[: end + 1]
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], _MESSAGES.get(found[0], ()))):
            raise ValueError("it sent no answer")
        return found


@cache  # the same for all workers
def _warn(missing: frozenset[tuple[str, str]]) -> None:
    if missing:
        guards = ", ".join(f"{guard} ({reason})" for guard, reason in sorted(missing))
        _log.warning("the model's SQL runs without some guards: %s", guards)


class ForkServer:
    """A running fork server, whose program is `verification.worker`.

    It has a session of its own: by ``sched_autogroup`` its workers starve no other fork server's, nor these them.
    """

    def __init__(self, memory_mb: int, nice: int) -> None:
        self._memory_mb, self._nice, self._client = memory_mb, nice, os.getpid()
        self._launch()

    def start(self, access: Access, on_slow: Callable[[], None]) -> Worker:
        """Start a worker. If it fails to start, its first job fails.

        Raises:
            BackendError: the fork server has ended; the message has its error output.
        """
        if self._process.poll() is not None:
            _log.warning("the fork server of the nl2sql workers was lost; a new one is started")
            self.close()
            self._launch()
        (connection, its), (lifeline, end) = socket.socketpair(), socket.socketpair()
        connection.settimeout(0.0)
        worker = Worker(connection, lifeline, access, on_slow)
        try:
            with its, end:
                socket.send_fds(self._control, [b"+"], [its.fileno(), end.fileno()])
                connection.send(pickle.dumps(access))
        except OSError as error:
            worker.close()
            raise BackendError(f"nl2sql: no worker process can be started ({error}). {self.error_output()}") from error
        return worker

    def error_output(self) -> str:
        """Its error output if it has ended; empty while it lives."""
        with suppress(subprocess.TimeoutExpired, ValueError):  # ValueError: it has been closed
            self._process.wait(_ERROR_S)
            if self._process.stderr is not None:
                return self._process.stderr.read().decode(errors="replace")[-_ERROR_CHARS:]
        return ""

    def close(self) -> None:
        """End the fork server and all workers. In a fork of the process that started it, only close the connection."""
        self._control.close()
        if self._client != os.getpid():
            self._process.returncode = 0  # nothing to wait for
            return
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _launch(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="rlfactory-sql-")  # the only one that workers can write to
        self._control, other = socket.socketpair()
        self._control.settimeout(0.0)
        arguments = (str(other.fileno()), str(self._memory_mb), str(self._nice), *map(os.path.abspath, sys.path))
        environment = {
            **{name: os.environ[name] for name in _INHERITED if name in os.environ},
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": self._folder,
            "TMPDIR": self._folder,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",  # all workers make the same varied databases
        }
        with other:
            self._process = subprocess.Popen(  # noqa: S603
                (sys.executable, "-c", _BOOT, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                env=environment,
                pass_fds=(other.fileno(),),
                start_new_session=True,
            )
