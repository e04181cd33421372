"""A pool of confined processes for jobs that may crash, hang or turn hostile; each can be ended without the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace

from rlfactory_core.errors import BackendError, RlfactoryError
from rlfactory_core.utils.cpu import usable_cores

from .forkserver import ForkServer
from .guards import Confinement
from .process import Process
from .worker import HEAD, framed

_log = logging.getLogger(__name__)

_BOOT = (
    "import sys, json; settings = json.loads(sys.argv[1]); sys.path[:] = settings['path']; "
    "from rlfactory_sandbox.worker import main; main(settings)"
)
_START_S = 60.0  # for a worker to start, including the fork server
_SLOW_S = 0.25  # a worker with a job for longer does not keep others from starting
_IDLE_S = 5.0  # idle time after which a surplus worker ends
_KEYS = 10_000  # most keys whose worker is remembered
_AT_ONCE = 1 << 16  # bytes
_MOST_BYTES = 1 << 30  # of one answer; a worker cannot have more memory
_MIB = 1 << 20
_CLOSED = "The pool of worker processes was closed."


class WorkerLostError(RlfactoryError, RuntimeError):
    """The process of a job was ended, by its deadline or by what the job did.

    Attributes:
        late: the job did not end in time.
        exit: the process's exit status, or minus the signal's number; None if it is unknown.
    """

    def __init__(self, message: str, *, late: bool = False, exit: int | None = None) -> None:  # noqa: A002
        super().__init__(message)
        self.late, self.exit = late, exit


class Pool:
    """Runs jobs in worker processes. A job is bytes, and so is its answer; the pool does not look into them.

    The processes start with the first job, also after `close`. A pool belongs to one event loop at a time.

    Args:
        program: ``module:name`` of a `worker.Program`. It is called once in each process, and what it returns answers
            each job. If that raises, the process ends.
        workers: the usual number of processes; 0: the number of cores that this process may use.
        most: their greatest number, while some have had their job for `_SLOW_S`; 0: no more than usual, and jobs
            with a key wait for their worker however long its job takes.
        memory_mb: address space of each, in addition to what Python and the program need.
        file_mb: the size of a file that it writes.
        environment: variables of the processes. They inherit none.
        nice: by how much their priority is lower.
    """

    def __init__(
        self,
        program: str,
        *,
        workers: int = 0,
        most: int = 0,
        memory_mb: int = 1024,
        file_mb: int = 256,
        open_files: int = 256,
        environment: Mapping[str, str] | None = None,
        nice: int = 0,
    ) -> None:
        self._name = program.partition(".")[0].removeprefix("rlfactory_")
        self._program, self._nice, self._environment = program, nice, dict(environment or {})
        self._usual = workers or usable_cores()
        self._most = max(most, self._usual)
        self._limits = Confinement(memory_mb * _MIB, file_mb * _MIB, open_files)
        self._open: _Workers | None = None

    async def run(
        self, job: bytes, seconds: float, *, key: str = "", reads: Collection[str] = (), connects: bool = False
    ) -> bytes:
        """The answer to a job. Jobs begin in the order in which they came, as far as their keys allow.

        Args:
            seconds: from the moment when a worker takes the job. Then this worker is ended.
            key: jobs with the same key run in the same worker, one after the other, unless it has ended or is slow.
            reads: files and folders that workers must be able to read from now on, besides Python's.
            connects: whether they must be able to connect to servers from now on.

        Raises:
            WorkerLostError: the job did not end in time, or it ended two processes (another job may end one, if memory
                is short).
            BackendError: no process can be started, or the pool was closed.
        """
        workers = self._here()
        workers.allow(frozenset(map(os.path.abspath, reads)), connects)
        for is_last in (False, True):
            worker = await workers.take(key)
            try:
                answer = await worker.run(job, seconds)
            except BaseException as error:
                workers.end(worker)
                if workers.closed and isinstance(error, RlfactoryError):
                    raise BackendError(_CLOSED) from error
                if is_last or not isinstance(error, RlfactoryError) or getattr(error, "late", False):
                    raise
            else:
                workers.give_back(worker)
                return answer
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """End all processes. Jobs that run or wait raise `BackendError`."""
        workers, self._open = self._open, None
        if workers is not None:
            await workers.close()

    def _here(self) -> _Workers:
        """The workers for this process and event loop."""
        workers = self._open
        if workers is not None and workers.pid == os.getpid() and not workers.loop.is_closed():
            if workers.loop is not asyncio.get_running_loop():
                raise RuntimeError(f"{self._name}: this pool is in use on another event loop; close it there first.")
            return workers
        if workers is not None:  # its event loop has ended, or this is a fork, and the workers are its parent's
            workers.drop()
        settings = {"program": self._program, "nice": self._nice, "path": list(map(os.path.abspath, sys.path))}
        server = ForkServer(self._name, ("-s", "-c", _BOOT, json.dumps(settings)), self._environment)
        readable = tuple(os.path.abspath(path) for path in sys.path if path)
        self._open = _Workers(server, replace(self._limits, readable=readable), self._usual, self._most)
        return self._open


class _Workers:
    """The workers of one process and event loop, and who gets them."""

    def __init__(self, server: ForkServer, confinement: Confinement, usual: int, most: int) -> None:
        self.server, self.closed = server, False
        self.loop, self.pid = asyncio.get_running_loop(), os.getpid()
        self._confinement, self._usual, self._most = confinement, usual, most
        self._all: set[_Worker] = set()
        self._idle: OrderedDict[_Worker, None] = OrderedDict()  # the one used last comes last
        self._homes: OrderedDict[str, _Worker] = OrderedDict()  # where a key's jobs run
        self._waiting: deque[tuple[str, asyncio.Future[_Worker]]] = deque()  # jobs' keys, and where they get a worker
        self._timer: asyncio.TimerHandle | None = None

    def allow(self, reads: frozenset[str], connects: bool) -> None:
        """Let workers reach more. One that runs cannot be allowed more, so it is replaced when its job has ended."""
        now = self._confinement
        if reads <= {*now.readable} and connects <= now.connects:
            return
        readable = (*now.readable, *(reads - {*now.readable}))
        self._confinement = replace(now, readable=readable, connects=now.connects or connects)
        for worker in [*self._idle]:
            self._end(worker)

    async def take(self, key: str) -> _Worker:
        """A worker for a job with this key; the job has it alone until it gives it back."""
        chosen: asyncio.Future[_Worker] = self.loop.create_future()
        self._waiting.append((key, chosen))
        self._hand_out()
        try:
            return await chosen
        except asyncio.CancelledError:
            if chosen.done() and not chosen.cancelled() and not chosen.exception():
                self.give_back(chosen.result())
            raise

    def give_back(self, worker: _Worker) -> None:
        """Let others have a worker that can go on."""
        if worker.confinement is not self._confinement or self.closed:
            self.end(worker)
            return
        self._idle[worker] = None
        if len(self._all) > self._usual:
            self.loop.call_later(_IDLE_S, self._end_surplus, worker, worker.began)
        self._hand_out()

    def end(self, worker: _Worker) -> None:
        """End a worker that runs no job."""
        self._end(worker)
        self._hand_out()

    async def close(self) -> None:
        """End all workers; what runs or waits ends with an error."""
        self.closed = True
        if self.pid != os.getpid() or self.loop.is_closed():
            self.drop()
            return
        for _, chosen in self._waiting:
            if not chosen.done():
                chosen.set_exception(BackendError(_CLOSED))
        for worker in [*self._all]:
            self._end(worker, runs=worker not in self._idle)
        await self.server.aclose()

    def drop(self) -> None:
        """Forget the workers of another process, or of an event loop that has ended."""
        self.server.close()
        for worker in self._all:
            if worker.process is not None:
                worker.process.drop()

    def _hand_out(self) -> None:
        """Give workers to the waiting jobs, as many as there are or may be."""
        now = self.loop.time()
        left = []
        while self._waiting and not self.closed and (self._idle or self._may_start(now)):
            key, chosen = self._waiting.popleft()
            if chosen.done():
                continue
            worker = self._choose(key, now)
            if worker is None:
                left.append((key, chosen))
                continue
            self._idle.pop(worker, None)
            worker.began = now
            chosen.set_result(worker)
        self._waiting.extendleft(reversed(left))
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting and not self.closed:  # look again when a worker is slow
            self._timer = self.loop.call_later(_SLOW_S, self._hand_out)

    def _choose(self, key: str, now: float) -> _Worker | None:
        """The worker for a job, of those that are idle or may start; None if it has to wait for its own."""
        home = self._homes.get(key)
        if home in self._idle:
            return home
        if home is not None and (self._most == self._usual or not home.is_slow(now)):
            return None
        if self._idle:
            worker = next(reversed(self._idle))
        else:
            worker = _Worker(self.server, self._confinement)
            self._all.add(worker)
        if key:
            self._homes[key] = worker
            if len(self._homes) > _KEYS:
                self._homes.popitem(last=False)
        return worker

    def _may_start(self, now: float) -> bool:
        slow = sum(worker.is_slow(now) for worker in self._all - self._idle.keys())
        return len(self._all) < min(self._usual + slow, self._most)

    def _end_surplus(self, worker: _Worker, began: float) -> None:
        if worker in self._idle and worker.began == began and len(self._all) > self._usual:
            self._end(worker)

    def _end(self, worker: _Worker, *, runs: bool = False) -> None:
        self._idle.pop(worker, None)
        self._all.discard(worker)
        for key in [key for key, home in self._homes.items() if home is worker]:
            del self._homes[key]
        if worker.process is not None:
            worker.process.kill()
            if not runs:  # else its job notices the end, and closes the connection
                worker.process.connection.close()


class _Worker:
    """A process that answers one job at a time. It starts with the first."""

    def __init__(self, server: ForkServer, confinement: Confinement) -> None:
        self.confinement = confinement
        self.began = 0.0  # when it took its job, by the event loop
        self._server = server
        self.process: Process | None = None
        self._loop = asyncio.get_running_loop()

    def is_slow(self, now: float) -> bool:
        """Whether it has had its job for long; asked of one that has a job."""
        return now - self.began >= _SLOW_S

    async def run(self, job: bytes, seconds: float) -> bytes:
        """The answer to a job; see `Pool.run`."""
        return await self._ask(self.process or await self._start(), job, seconds)

    async def _start(self) -> Process:
        try:
            process = self.process = await Process.start(self._server)
            wanted = json.dumps(asdict(self.confinement)).encode()
            missing = json.loads(await self._ask(process, wanted, _START_S))
        except (OSError, ValueError, WorkerLostError) as error:
            raise BackendError(f"no worker process starts. {self._server.log() or error}") from error
        if missing:
            guards = ", ".join(f"{guard} ({reason})" for guard, reason in sorted(missing.items()))
            _log.warning("worker processes run without some guards: %s", guards)
        return process

    async def _ask(self, process: Process, message: bytes, seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(process.connection, message)
        except TimeoutError:
            raise WorkerLostError(f"a job took longer than {seconds:g} s", late=True) from None
        except (OSError, EOFError, ValueError) as error:
            ending = await process.end()
            raise WorkerLostError(f"a job ended its process: {error} ({ending})", exit=ending.status) from error

    async def _exchange(self, connection: socket.socket, message: bytes) -> bytes:
        with contextlib.suppress(BlockingIOError):
            raise EOFError(f"it has ended, or sent an answer without a job: {connection.recv(1)!r}")
        came, size = bytearray(), 0
        await self._loop.sock_sendall(connection, framed(message))
        while len(came) < HEAD + size:
            more = await self._loop.sock_recv(connection, _AT_ONCE)
            if not more:
                raise EOFError("it has ended")
            came += more
            size = int.from_bytes(came[:HEAD], "big") if len(came) >= HEAD else 0
            if size > _MOST_BYTES or len(came) > HEAD + size > HEAD:
                raise ValueError("it sent something other than an answer")
        return bytes(came[HEAD:])
