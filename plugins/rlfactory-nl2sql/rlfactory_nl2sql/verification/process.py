"""A worker as its client sees it: start it, run one job at a time, end it."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from rlfactory_core.errors import BackendError, RlfactoryError
from rlfactory_core.workers.forkserver import ForkServer
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases.limiting import LATEST, SLOW
from rlfactory_nl2sql.verification.encoding import decode
from rlfactory_nl2sql.verification.worker import Access, Job

_log = logging.getLogger(__name__)

_BOOT = "import sys; sys.path[:] = sys.argv[3:]; from rlfactory_nl2sql.verification.worker import main; main()"
_START_S = 60.0  # for a worker to start, including the fork server
_MOMENT_S = 0.05  # a query is not slow before
_GRACE_S = 0.03  # for an engine to notice the deadline
_AT_ONCE = 1 << 16  # bytes
_MOST = 1 << 30  # bytes of one message; a worker cannot have more memory
_MESSAGES = {"started": dict, "clock": float, "done": object, "failed": RlfactoryError, "bug": str}


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
                            self.slow_from = loop.time() + max(_MOMENT_S, SLOW * seconds)
                            loop.call_at(self.slow_from, self._on_slow)
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


def forkserver(memory_mb: int, nice: int) -> ForkServer:
    """The fork server of workers with so much memory, and a priority that is lower by ``nice``."""
    arguments = ("-c", _BOOT, str(memory_mb), str(nice), *map(os.path.abspath, sys.path))
    # SQLite asks for the place of its temporary files before the fork; they belong into each worker's own folder.
    environment = {"SQLITE_TMPDIR": ".", **{name: os.environ[name] for name in ("TZ",) if name in os.environ}}
    return ForkServer("sql", arguments, environment)


def start(server: ForkServer, access: Access, on_slow: Callable[[], None]) -> Worker:
    """Start a worker. If it fails to start, its first job fails.

    Raises:
        BackendError: the fork server has ended; the message has its error output.
    """
    connection, other = socket.socketpair()
    connection.settimeout(0.0)
    try:
        with other:
            connection.send(pickle.dumps(access))
            return Worker(connection, server.fork(other.fileno()), access, on_slow)
    except OSError as error:
        connection.close()
        raise BackendError(f"nl2sql: no worker process can be started ({error}). {server.log()}") from error
