"""A worker as its client sees it: start it, run one job at a time, end it."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlfactory_sandbox import ForkServer

from rlfactory_core.errors import BackendError, RlfactoryError
from rlfactory_nl2sql.connection import LATEST, Failure, QueryError
from rlfactory_nl2sql.databases.limiting import SLOW, late
from rlfactory_nl2sql.verification.connections import KEPT
from rlfactory_nl2sql.verification.encoding import decode
from rlfactory_nl2sql.verification.lines import LineReader
from rlfactory_nl2sql.verification.worker import Access

_log = logging.getLogger(__name__)

_BOOT = "import sys; sys.path[:] = sys.argv[3:]; from rlfactory_nl2sql.verification.worker import main; main()"
_START_S = 60.0  # for a worker to start, including the fork server
_MOMENT_S = 0.05  # a query is not slow before
_GRACE_S = 0.03  # for an engine to notice the deadline
_MOST = 1 << 30  # bytes of one message; a worker cannot have more memory
_MESSAGES: dict[str, Any] = {
    "started": dict,
    "clock": float,
    "slow": float,
    "done": object,
    "failed": RlfactoryError,
    "bug": str,
}


class WorkerBug(RuntimeError):  # noqa: N818 - a bug, not a user's error
    """A job failed because of a bug in this plugin; the log has the traceback."""


@dataclass(slots=True, eq=False)
class Request:
    """A job for a worker, and its answer."""

    data: bytes  # pickled, as `worker` reads it
    content: bytes  # for this and other jobs
    seconds: float  # from the moment when a worker takes it
    query_s: float  # that its first query has, so that its clock starts at once; 0: the job starts it
    affinity: str
    ends_soon: bool
    tells_slow: bool  # whether its process tells when it is slow; otherwise, it is after a share of its seconds
    answer: asyncio.Future[Any]
    overtaken: int = 0  # by how many others, while it waits
    lost: bool = False  # with a worker that has ended; another may have ended that one, if memory is short

    def settle(self, value: Any, error: Exception | None = None) -> None:
        """Set the answer, unless it is there, or nobody waits for it any more."""
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(value)
        else:
            self.answer.set_exception(error)


class Worker:
    """One worker process.

    Args:
        on_free: called when a request has its answer; `usable` says whether another can follow.
        on_lost: called when the process has ended, and whether it had begun to run jobs. Its request has no answer.
        on_fill: called when there may be room for another worker: it has started, or its job turns out to be slow.
    """

    def __init__(
        self,
        connection: socket.socket,
        lifeline: socket.socket,
        access: Access,
        on_free: Callable[[Worker], None],
        on_lost: Callable[[Worker, bool], None],
        on_fill: Callable[[], None],
    ) -> None:
        self.access = access
        self.usable = True
        self.request: Request | None = None  # which it runs
        self.slow_from: float | None = None  # time of the event loop; None before the running job started its clock
        self._loop = asyncio.get_running_loop()
        self.began = self._loop.time()
        self.started_at: float | None = None
        self._connection, self._lifeline = connection, lifeline
        self._on_free, self._on_lost, self._on_fill = on_free, on_lost, on_fill
        self._slots: OrderedDict[bytes, int] = OrderedDict()  # where the process keeps contents, last used last
        self._seconds = self._ends = 0.0  # of the request: what its job has, and when it is late
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._reader = LineReader(connection, _MOST, self._on_line, self._on_end)

    def run(self, request: Request) -> None:
        """Run a job. The answer is its result, or one of these errors:

        - `QueryError` with `Failure.DEADLINE`: it did not end in time.
        - `WorkerBug`: the job failed because of a bug in this plugin.
        - `RlfactoryError`: what the job raised.
        """
        self.request = request
        if self.started_at is not None:
            self._begin(request)
        else:
            self._wait(_START_S)
        data, sent = self._content(request.content) + request.data, 0
        with suppress(OSError):  # it is full, or the process is gone, as reading shows
            sent = self._connection.send(data)
        if sent < len(data):
            rest = memoryview(data)[sent:]
            self._sending = asyncio.ensure_future(self._loop.sock_sendall(self._connection, rest))
            self._sending.add_done_callback(lambda task: task.cancelled() or task.exception())

    def end(self) -> None:
        """End the process at once, and with it what it runs."""
        with suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the process."""
        for waiting in (self._timer, self._sending):
            if waiting is not None:
                waiting.cancel()
        self._lifeline.close()
        self._reader.close()

    def _content(self, content: bytes) -> bytes:
        """What tells the process where it keeps a content, with the content if that is new to it."""
        new = content and content not in self._slots
        if new:
            free = len(self._slots) < KEPT
            self._slots[content] = len(self._slots) if free else self._slots.popitem(last=False)[1]
        if content:
            self._slots.move_to_end(content)
        return pickle.dumps((self._slots.get(content, -1), content if new else b""), pickle.HIGHEST_PROTOCOL)

    def _begin(self, request: Request) -> None:
        self._seconds = request.seconds
        if request.query_s:
            self._set_clock(request, request.query_s)
        else:
            self._wait(request.seconds)

    def _on_line(self, line: bytes | bytearray) -> None:
        try:
            found = decode(line)
            kind, value = found if isinstance(found, tuple) and len(found) == 2 else ("", None)
            if self.request is None or not isinstance(value, _MESSAGES.get(kind, ())):
                raise ValueError("it sent no answer")
            if kind == "started":
                _warn(frozenset(value.items()))
        except (ValueError, TypeError) as error:  # so the worker runs more than this plugin's code
            self._on_end(ValueError(str(error)))
            return
        if kind == "started":
            self.started_at = self._loop.time()
            self._on_fill()
            self._begin(self.request)
        elif kind == "clock":
            self._set_clock(self.request, value)
        elif kind == "slow":
            if not self.request.ends_soon:
                self.slow_from = self._loop.time()
                self._on_fill()
        elif kind == "done":
            self._answer(value)
        elif kind == "failed":
            self._answer(None, value)
        else:
            _log.error("A job failed.\n%s", value.strip())
            self._answer(None, WorkerBug(f"A bug in rlfactory-nl2sql: {value.strip().rpartition(chr(10))[2]}"))

    def _set_clock(self, request: Request, seconds: float) -> None:
        self._seconds = min(request.seconds, seconds)
        self._wait(LATEST * self._seconds)  # the engine ends a query itself, on a busy machine later
        if not request.ends_soon:
            # A job that should have told that it is slow is in one long instruction, or the machine is busy.
            share = 1.0 if request.tells_slow else SLOW
            self.slow_from = self._loop.time() + max(_MOMENT_S, share * self._seconds)
            self._loop.call_at(self.slow_from, self._on_fill)

    def _wait(self, seconds: float) -> None:
        """Wait so long for the answer. The timer stays if it ends earlier, since nearly all answers come before."""
        self._ends = self._loop.time() + seconds + _GRACE_S
        if self._timer is None or self._timer.when() > self._ends:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._ends, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self.request is None:
            return
        if self._loop.time() < self._ends:
            self._timer = self._loop.call_at(self._ends, self._on_time)
        elif self.started_at is not None:
            self.usable = False
            self._answer(None, late(self._seconds))
        else:
            self._lose()

    def _on_end(self, error: Exception) -> None:
        self.usable = False
        if isinstance(error, ValueError) and self.request is not None:
            self._answer(None, QueryError(Failure.ERROR, f"The query damaged the database's engine: {error}."))
        else:
            self._lose()

    def _lose(self) -> None:
        self.usable = False
        self._on_lost(self, self.started_at is not None)

    def _answer(self, value: Any, error: Exception | None = None) -> None:
        request, self.request, self.slow_from = self.request, None, None
        if request is not None:
            request.settle(value, error)
        self._on_free(self)


@cache  # the same for all workers
def _warn(missing: frozenset[tuple[str, str]]) -> None:
    if missing:
        guards = ", ".join(f"{guard} ({reason})" for guard, reason in sorted(missing))
        _log.warning("the model's SQL runs without some guards: %s", guards)


def forkserver(memory_mb: int, nice: int) -> ForkServer:
    """The fork server of workers with so much memory, and a priority that is lower by ``nice``."""
    arguments = ("-c", _BOOT, str(memory_mb), str(nice), *map(os.path.abspath, sys.path))
    # SQLite asks for the place of its temporary files before the fork; they belong into each worker's own folder.
    environment = {"SQLITE_TMPDIR": ".", **{name: os.environ[name] for name in ("TZ",) if name in os.environ}}
    return ForkServer("sql", arguments, environment)


def connect(server: ForkServer, access: Access) -> tuple[socket.socket, socket.socket]:
    """Start a process; returns a worker's connection and lifeline. If it fails to start, it is lost with its first job.

    Raises:
        BackendError: the fork server has ended; the message has its error output.
    """
    connection, other = socket.socketpair()
    connection.settimeout(0.0)
    try:
        with other:
            connection.send(pickle.dumps(access))
            return connection, server.fork(other.fileno())
    except OSError as error:
        connection.close()
        raise BackendError(f"nl2sql: no worker process can be started ({error}). {server.log()}") from error
