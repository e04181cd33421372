"""The client's side of the workers and their fork server: start, run one job at a time, end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
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
from rlfactory_nl2sql.databases.limiting import LATEST
from rlfactory_nl2sql.verification.access import Access, environment, secrets_of
from rlfactory_nl2sql.verification.encoding import decode
from rlfactory_nl2sql.verification.large import LargeBytes, dump_job
from rlfactory_nl2sql.verification.worker import (
    BUG,
    CLOCK,
    FAILED,
    JOB,
    KILL,
    ORDER,
    RESULT,
    SECONDS,
    START,
    TAKEN,
    Frame,
    Frames,
    Job,
    Request,
    pack,
)

_log = logging.getLogger(__name__)

_BOOT = (
    "import sys; sys.path[:] = sys.argv[3:]; from rlfactory_nl2sql.verification.forkserver import main; "
    "main(int(sys.argv[1]), int(sys.argv[2]))"
)
_START_S = 60.0  # for a worker to take its job, including the fork server's start
_GRACE_S = 0.03  # for an engine to notice the deadline
_STOP_S = 10.0  # for the fork server to end
_ERROR_S = 0.5  # for a failing fork server to write its error
_ERROR_CHARS = 2000  # of its error output, shown in errors


class WorkerLost(Exception):  # noqa: N818 - never leaves the pool
    """The process has ended. ``after_s``: seconds since its job began; None if it had not begun."""

    def __init__(self, after_s: float | None) -> None:
        super().__init__()
        self.after_s = after_s


class WorkerBug(RuntimeError):  # noqa: N818 - a bug, not a user's error
    """A job failed because of a bug in this plugin."""

    def __init__(self, trace: str) -> None:
        super().__init__(f"A bug in rlfactory-nl2sql: {trace.strip().rpartition(chr(10))[2]}")
        self.trace = trace


class Worker:
    """One worker process. ``kill`` kills it."""

    def __init__(self, connection: socket.socket, kill: Callable[[], None], access: Access) -> None:
        self.access = access
        self.usable = True  # for another job; False while a job runs
        self.since: float | None = None  # time of the event loop at which the running job started its clock
        self._connection, self._frames = connection, Frames(connection)
        self._kill = kill
        self._late = self._has_started = False
        self._sent = LargeBytes()

    async def run(self, job: Job, seconds: float) -> Any:
        """Run a job and return its result.

        Raises:
            QueryError: with `Failure.DEADLINE`: it did not end in time. The worker must be killed.
            WorkerLost: its process ended.
            WorkerBug: the job failed because of a bug in this plugin.
            RlfactoryError: what the job raised.
        """
        loop = asyncio.get_running_loop()
        self.usable, self.since, most, wait = False, None, seconds, seconds
        began = loop.time() if self._has_started else None
        timer = loop.call_later(_START_S if began is None else seconds + _GRACE_S, self._give_up)
        try:
            with contextlib.suppress(OSError):  # the process is gone; reading the answer shows it too
                body = dump_job(Request(job, seconds, secrets_of(job)), self._sent)
                await loop.sock_sendall(self._connection, pack(JOB, body))
            while (frame := await self._frames.next()) is not None and frame[0] in (TAKEN, CLOCK):
                timer.cancel()
                self._has_started = True
                if frame[0] == TAKEN:
                    _warn(frame[1])
                if frame[0] == CLOCK:
                    self.since = loop.time()
                    seconds = min(most, *SECONDS.unpack(frame[1]))
                    wait = LATEST * seconds  # the engine ends a query itself, on a busy machine later
                began = began or loop.time()
                timer = loop.call_later(wait + _GRACE_S, self._give_up)
        finally:
            timer.cancel()
        if self._late and began is not None:
            raise QueryError(Failure.DEADLINE, f"The query took longer than {seconds:.3g} s.")
        if frame is None:
            raise WorkerLost(None if began is None else loop.time() - began)
        try:
            answer = _answer(frame)
        except ValueError as error:  # so the worker runs more than this plugin's code
            raise QueryError(Failure.ERROR, f"The query damaged the database's engine: {error}.") from None
        self.usable, self.since = True, None
        if isinstance(answer, Exception):
            raise answer
        return answer

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


@cache  # the same for all workers
def _warn(missing: bytes) -> None:
    guards = ", ".join(f"{guard} ({reason})" for guard, reason in sorted(json.loads(missing).items()))
    if guards:
        _log.warning("the model's SQL runs without some guards: %s", guards)


def _answer(frame: Frame) -> Any:
    """A job's result, or the exception that it raised; raises `ValueError` if no worker of this plugin answers so."""
    kind, body = frame
    if kind == BUG:
        return WorkerBug(body.decode(errors="replace"))
    answer = decode(body)
    if (kind, isinstance(answer, RlfactoryError)) not in ((RESULT, False), (FAILED, True)):
        raise ValueError(f"an answer of the kind {kind!r} holds {type(answer).__name__}")
    return answer


class ForkServer:
    """A running fork server, whose program is `verification.forkserver`. It ends with this object."""

    def __init__(self, memory_mb: int) -> None:
        self._folder = tempfile.mkdtemp(prefix="rlfactory-sql-")
        self._client = os.getpid()
        self._numbers = itertools.count()
        self._control, other = socket.socketpair()
        self._control.settimeout(0.0)
        with other:
            arguments = (str(other.fileno()), str(memory_mb), *map(os.path.abspath, sys.path))
            self._process = subprocess.Popen(  # noqa: S603
                (sys.executable, "-c", _BOOT, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                env=environment(self._folder),
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
        number = next(self._numbers)
        ours, its = socket.socketpair()
        ours.settimeout(0.0)
        try:
            with its:
                allowed = pickle.dumps(access)
                socket.send_fds(self._control, [ORDER.pack(START, number, len(allowed)), allowed], [its.fileno()])
        except OSError as error:
            ours.close()
            raise BackendError(f"nl2sql: no worker process can be started ({error}). {self.error_output()}") from error
        return Worker(ours, partial(self._kill, number), access)

    def error_output(self) -> str:
        """Its error output if it has ended; empty while it lives."""
        try:
            self._process.wait(_ERROR_S)
        except subprocess.TimeoutExpired:
            return ""
        if self._process.stderr is None or self._process.stderr.closed:
            return ""
        return self._process.stderr.read().decode(errors="replace")[-_ERROR_CHARS:]

    def drop(self) -> None:
        """`close` without an event loop. In a fork of the process that started it, only the connection is closed."""
        self._control.close()
        if self._client == os.getpid():
            self._process.wait(_STOP_S)
        else:
            self._process.returncode = 0  # nothing to wait for
        self._clean_up()

    def _kill(self, number: int) -> None:
        with contextlib.suppress(OSError):  # the fork server has ended, and with it all workers
            self._control.send(ORDER.pack(KILL, number, 0))

    async def close(self) -> None:
        """End the fork server and all workers."""
        self._control.close()
        clock = asyncio.get_running_loop().time
        ends = clock() + _STOP_S
        while self.alive:
            if clock() > ends:
                self._process.kill()
                ends += _STOP_S
            await asyncio.sleep(0.002)
        self._clean_up()

    def _clean_up(self) -> None:
        if self._client == os.getpid():
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._process.stderr is not None:
            self._process.stderr.close()
