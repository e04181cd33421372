"""The client's side of the workers and their fork server: start, run one job at a time, end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from rlfactory_core.errors import BackendError, RlfactoryError
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases.limiting import LATEST, SLOW
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.verification.encoding import decode
from rlfactory_nl2sql.verification.worker import (
    NUMBER,
    SIZE,
    Access,
    Bug,
    Clock,
    Confined,
    Done,
    Job,
    Request,
    message,
)

_log = logging.getLogger(__name__)

_BOOT = (
    "import sys; sys.path[:] = sys.argv[4:]; from rlfactory_nl2sql.verification.forkserver import main; "
    "main(*map(int, sys.argv[1:4]))"
)
_START_S = 60.0  # for a worker to take its job, including the fork server's start
_MOMENT_S = 0.05  # a query is not slow before
_GRACE_S = 0.03  # for an engine to notice the deadline
_STOP_S = 10.0  # for the fork server to end
_ERROR_S = 0.5  # for a failing fork server to write its error
_ERROR_CHARS = 2000  # of its error output, shown in errors
_AT_ONCE = 1 << 16  # bytes
_MOST = 1 << 30  # bytes of one message; a worker cannot have more memory
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
    """One worker process. ``kill`` kills it."""

    def __init__(self, connection: socket.socket, kill: Callable[[], None], access: Access) -> None:
        self.access = access
        self.usable = True  # for another job; False while a job runs
        self.slow_from: float | None = None  # time of the event loop; None before the running job started its clock
        self._connection, self._kill = connection, kill
        self._late = self._confined = False
        self._came = bytearray()  # of its messages

    async def run(self, job: Job, seconds: float) -> Any:
        """Run a job and return its result.

        Raises:
            QueryError: with `Failure.DEADLINE`: it did not end in time. The worker must be killed.
            WorkerLost: its process ended.
            WorkerBug: the job failed because of a bug in this plugin.
            RlfactoryError: what the job raised.
        """
        loop = asyncio.get_running_loop()
        self.usable, self.slow_from, most = False, None, seconds
        request = pickle.dumps(Request(job, seconds, _secrets(job), self.access), pickle.HIGHEST_PROTOCOL)
        timer = loop.call_later(seconds + _GRACE_S if self._confined else _START_S, self._give_up)
        try:
            with contextlib.suppress(OSError):  # the process is gone; reading the answer shows it too
                await loop.sock_sendall(self._connection, message(request))
            while isinstance(answer := await self._next(), Confined | Clock):
                timer.cancel()
                if isinstance(answer, Confined):
                    self._confined, wait = True, seconds
                    _warn(frozenset(answer.missing.items()))
                else:
                    seconds = min(most, answer.seconds)
                    if not getattr(job, "ends_soon", False):
                        self.slow_from = loop.time() + max(_MOMENT_S, SLOW * seconds)
                    wait = LATEST * seconds  # the engine ends a query itself, on a busy machine later
                timer = loop.call_later(wait + _GRACE_S, self._give_up)
        except (OSError, EOFError):
            if self._late and self._confined:
                raise QueryError(Failure.DEADLINE, f"The query took longer than {seconds:.3g} s.") from None
            raise WorkerLost(began=self._confined) from None
        except (ValueError, TypeError, AttributeError) as error:  # so the worker runs more than this plugin's code
            raise QueryError(Failure.ERROR, f"The query damaged the database's engine: {error}.") from None
        finally:
            timer.cancel()
        self.usable, self.slow_from = not self._late, None
        if isinstance(answer, RlfactoryError):
            raise answer
        if isinstance(answer, Bug):
            trace = str(answer.trace).strip()
            _log.error("A job failed.\n%s", trace)
            raise WorkerBug(f"A bug in rlfactory-nl2sql: {trace.rpartition(chr(10))[2]}")
        return answer.result

    def disconnect(self) -> None:
        """Close the connection. The result of a running job is lost, and the process ends after it at the latest."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """End the process at once. No `run` may be in progress."""
        self._connection.close()
        self._kill()

    def _give_up(self) -> None:
        self._late = True
        self.disconnect()

    async def _next(self) -> Confined | Clock | Done | Bug | RlfactoryError:
        """The worker's next message; raises `OSError` or `EOFError` if it is gone, `ValueError` if it is no message."""
        loop = asyncio.get_running_loop()
        while len(self._came) < (end := self._end()):
            more = await loop.sock_recv(self._connection, _AT_ONCE)
            if not more:
                raise EOFError
            self._came += more
        body = bytes(self._came[SIZE.size : end])
        del self._came[:end]
        found = decode(body)
        if not isinstance(found, Confined | Clock | Done | Bug | RlfactoryError):
            raise ValueError(f"{type(found).__name__} is no answer")
        return found

    def _end(self) -> int:
        """The end of the next message, or of its size, in what came."""
        if len(self._came) < SIZE.size:
            return SIZE.size
        (size,) = SIZE.unpack_from(self._came)
        if size > _MOST:
            raise ValueError(f"an answer of {size} bytes")
        return SIZE.size + int(size)


def needed(job: Any) -> Access:
    """What a job must reach: its ``ref``, if it has one, names a database."""
    ref = getattr(job, "ref", None)
    if not isinstance(ref, DatabaseRef):
        return Access()
    return Access(frozenset({os.path.dirname(ref.location)})) if ref.is_file else Access(connects=True)


def _secrets(job: Any) -> dict[str, str]:
    """The variables that the URL of a job's database names, as far as they are set."""
    ref = getattr(job, "ref", None)
    names = ref.variables if isinstance(ref, DatabaseRef) else ()
    return {name: os.environ[name] for name in names if name in os.environ}


@cache  # the same for all workers
def _warn(missing: frozenset[tuple[str, str]]) -> None:
    if missing:
        guards = ", ".join(f"{guard} ({reason})" for guard, reason in sorted(missing))
        _log.warning("the model's SQL runs without some guards: %s", guards)


class ForkServer:
    """A running fork server, whose program is `verification.forkserver`. It ends with this object."""

    def __init__(self, memory_mb: int, nice: int) -> None:
        self._folder = tempfile.mkdtemp(prefix="rlfactory-sql-")
        self._client = os.getpid()
        self._numbers = itertools.count()
        self._control, other = socket.socketpair()
        self._control.settimeout(0.0)
        with other:
            arguments = (str(other.fileno()), str(memory_mb), str(nice), *map(os.path.abspath, sys.path))
            self._process = subprocess.Popen(  # noqa: S603
                (sys.executable, "-c", _BOOT, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                env=_environment(self._folder),
                pass_fds=(other.fileno(),),
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def start(self, access: Access) -> Worker:
        """Start a worker with this access. If it fails to start, its first job fails.

        Raises:
            BackendError: the fork server has ended; the message has its error output.
        """
        number = NUMBER.pack(next(self._numbers))
        ours, its = socket.socketpair()
        ours.settimeout(0.0)
        try:
            with its:
                socket.send_fds(self._control, [number], [its.fileno()])
        except OSError as error:
            ours.close()
            raise BackendError(f"nl2sql: no worker process can be started ({error}). {self.error_output()}") from error
        return Worker(ours, partial(self._kill, number), access)

    def error_output(self) -> str:
        """Its error output if it has ended; empty while it lives."""
        with contextlib.suppress(subprocess.TimeoutExpired, ValueError):  # ValueError: it has been closed
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

    def _kill(self, number: bytes) -> None:
        with contextlib.suppress(OSError):  # the fork server has ended, and with it all workers
            self._control.send(number)


def _environment(folder: str) -> dict[str, str]:
    """The environment variables of workers, whose temporary files are in ``folder``."""
    return {
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": folder,
        "TMPDIR": folder,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",  # all workers make the same varied databases
    }
