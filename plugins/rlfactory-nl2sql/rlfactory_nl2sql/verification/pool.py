"""Worker processes for all work that may block, crash or never end: running queries and parsing SQL.

There are as many workers as cores. While queries are slow, more workers are started, so that queries which hang until
their deadline do not delay the others. Surplus workers end when they are idle.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.errors import BackendError
from rlfactory_core.utils.cpu import usable_cores
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.verification.access import Access, needed
from rlfactory_nl2sql.verification.process import ForkServer, Worker, WorkerBug, WorkerLost
from rlfactory_nl2sql.verification.worker import Job

_log = logging.getLogger(__name__)

_MOMENT_S = 0.05  # a job that takes longer, without its preparations, is slow
_IDLE_S = 5.0  # idle time after which a surplus worker ends
_KNOWN = 128  # affinities that a worker is assumed to have cached: as many golds' databases as it keeps
_LOOK = 64  # waiting jobs among which a free worker looks for a known affinity
_OVERTAKEN = 16  # times that a waiting job may be overtaken
_MOST_AT_LEAST = 32
_CLOSED = "nl2sql: the pool of workers has been closed."


@dataclass(slots=True, eq=False)
class _Waiting:
    """A job that waits for a worker."""

    worker: asyncio.Future[Worker]
    affinity: str
    overtaken: int = 0


@dataclass(slots=True)
class _Running:
    """The state of a pool in use. It belongs to one process and one event loop."""

    loop: asyncio.AbstractEventLoop
    forkserver: ForkServer
    workers: dict[Worker, deque[str]] = field(default_factory=dict)  # with their known affinities
    idle: dict[Worker, asyncio.TimerHandle] = field(default_factory=dict)  # least recently used first
    waiting: deque[_Waiting] = field(default_factory=deque)
    growth: asyncio.TimerHandle | None = None
    access: Access = field(default_factory=Access)  # what all jobs so far need; a worker with less is replaced
    process: int = field(default_factory=os.getpid)


class WorkerPool:
    """Runs jobs in worker processes, in the order of arrival. It starts with the first job, also after `close`.

    Args:
        workers: their usual number; 0: the number of cores that this process may use.
        most: their greatest number while some are slow; 0: four times as many, and at least 32.
        memory_mb: address space of one worker in addition to what Python needs.
    """

    def __init__(self, workers: int = 0, most: int = 0, memory_mb: int = 1024) -> None:
        self._workers = workers or usable_cores()
        self._most = max(most or max(4 * self._workers, _MOST_AT_LEAST), self._workers)
        self._memory_mb = memory_mb
        self._running: _Running | None = None

    async def run(self, job: Job, deadline_s: float, affinity: str = "") -> Any:
        """Run a job and return its result.

        Args:
            deadline_s: seconds from the moment when a worker takes the job.
            affinity: jobs with the same affinity go to the same worker where that saves time.

        Raises:
            QueryError: the job raised it; `Failure.DEADLINE` if it does not end in time, and `Failure.ERROR` if it ends
                its process.
            BackendError: the job raised it, no process can be started, or the pool has been closed.
            WorkerBug: the job failed because of a bug in this plugin; the log has the traceback.
        """
        running = self._started()
        self._widen(running, needed(job))
        left = deadline_s
        for last in (False, True):
            worker = await self._take(running, affinity)
            try:
                return await worker.run(job, left)
            except WorkerLost as lost:
                if self._running is not running:
                    raise BackendError(_CLOSED) from None
                if last and lost.after_s is None:
                    raise BackendError(
                        f"nl2sql: no worker process starts. {running.forkserver.error_output()}"
                    ) from None
                if last:
                    raise QueryError(Failure.ERROR, "The query ended the database's engine.") from None
                left -= lost.after_s or 0.0  # repeat once: other workers may be the cause, if memory is short
            except WorkerBug as bug:
                _log.error("%s\n%s", bug, bug.trace)
                raise
            finally:
                self._give(running, worker)
        raise AssertionError  # the second attempt returns or raises

    async def close(self) -> None:
        """End all workers. Running and waiting jobs raise `BackendError`."""
        running, self._running = self._running, None
        if running is None:
            return
        if running.process != os.getpid():
            _drop(running)
            return
        if running.growth is not None:
            running.growth.cancel()
        for worker in list(running.idle):
            self._end(running, worker)
        for worker in running.workers:
            worker.disconnect()
        for waiting in running.waiting:
            if not waiting.worker.done():
                waiting.worker.set_exception(BackendError(_CLOSED))
        await running.forkserver.close()

    def _started(self) -> _Running:
        running, loop = self._running, asyncio.get_running_loop()
        if running is not None and running.process != os.getpid():  # a fork: the workers are its parent's
            _drop(running)
            running = None
        elif running is not None and running.loop is not loop:
            if not running.loop.is_closed():
                raise RuntimeError("This WorkerPool is in use on another event loop: close it there, or make another.")
            _drop(running)
            running = None
        self._running = running or _Running(loop, ForkServer(self._memory_mb))
        return self._running

    def _widen(self, running: _Running, access: Access) -> None:
        """Let workers reach this too. They cannot be allowed more once they run, so idle ones are replaced now."""
        running.access, before = running.access | access, running.access
        if running.access != before:
            for worker in list(running.idle):
                self._end(running, worker)

    async def _take(self, running: _Running, affinity: str) -> Worker:
        """A worker for one job."""
        if not running.waiting:
            if running.idle:
                return self._wake(running, affinity)
            if len(running.workers) < self._allowed(running):
                return self._start(running, affinity)
        waiting = _Waiting(running.loop.create_future(), affinity)
        running.waiting.append(waiting)
        self._watch(running)
        try:
            return await waiting.worker
        except asyncio.CancelledError:
            if waiting in running.waiting:
                running.waiting.remove(waiting)
            elif waiting.worker.done() and not waiting.worker.cancelled() and not waiting.worker.exception():
                self._give(running, waiting.worker.result())
            raise

    def _give(self, running: _Running, worker: Worker) -> None:
        """Take a worker back, and start waiting jobs."""
        if not worker.usable or worker.access != running.access or self._running is not running:
            self._end(running, worker)
        elif running.waiting:
            self._hand(running, worker)
        else:
            running.idle[worker] = running.loop.call_later(_IDLE_S, self._end_surplus, running, worker)
        self._fill(running)

    def _hand(self, running: _Running, worker: Worker) -> None:
        """Give a worker the first waiting job, or one of the next with an affinity that it knows."""
        known, chosen = running.workers[worker], running.waiting[0]
        if chosen.overtaken < _OVERTAKEN:
            near = itertools.islice(running.waiting, _LOOK)
            chosen = min(near, key=lambda waiting: self._foreign(running, worker, waiting.affinity))
        if chosen is not running.waiting[0]:
            running.waiting[0].overtaken += 1
        running.waiting.remove(chosen)
        _remember(known, chosen.affinity)
        chosen.worker.set_result(worker)

    def _foreign(self, running: _Running, worker: Worker, affinity: str) -> int:
        """0 if this worker knows an affinity, 1 if none does, 2 if another one does."""
        if affinity in running.workers[worker]:
            return 0
        return 1 + any(affinity in known for known in running.workers.values())

    def _fill(self, running: _Running) -> None:
        """Start workers for the waiting jobs, as many as are allowed."""
        while running.waiting and self._running is running and len(running.workers) < self._allowed(running):
            try:
                self._hand(running, self._start(running))
            except BackendError as error:
                running.waiting.popleft().worker.set_exception(error)

    def _watch(self, running: _Running) -> None:
        """While jobs wait, check again shortly whether more workers are allowed."""
        if running.growth is None and running.waiting:
            running.growth = running.loop.call_later(_MOMENT_S, self._grow, running)

    def _grow(self, running: _Running) -> None:
        running.growth = None
        self._fill(running)
        self._watch(running)

    def _allowed(self, running: _Running) -> int:
        """The number of workers allowed now: two more for each slow one, so that the others have half of the cores."""
        before = running.loop.time() - _MOMENT_S
        slow = sum(1 for worker in running.workers if worker.since is not None and worker.since < before)
        return min(self._workers + 2 * slow, self._most)

    def _start(self, running: _Running, affinity: str = "") -> Worker:
        if not running.forkserver.alive:
            _log.warning("the fork server of the nl2sql workers was lost; a new one is started")
            running.forkserver.drop()
            running.forkserver = ForkServer(self._memory_mb)
        worker = running.forkserver.start(running.access)
        running.workers[worker] = deque([affinity], maxlen=_KNOWN)
        return worker

    def _wake(self, running: _Running, affinity: str) -> Worker:
        """An idle worker that knows the affinity, else the one used last."""
        latest_first = reversed(running.idle)
        chosen = next((worker for worker in latest_first if affinity in running.workers[worker]), None)
        chosen = chosen or next(reversed(running.idle))
        running.idle.pop(chosen).cancel()
        _remember(running.workers[chosen], affinity)
        return chosen

    def _end_surplus(self, running: _Running, worker: Worker) -> None:
        if len(running.workers) > self._workers:
            self._end(running, worker)

    def _end(self, running: _Running, worker: Worker) -> None:
        if timer := running.idle.pop(worker, None):
            timer.cancel()
        del running.workers[worker]
        worker.end()


def _drop(running: _Running) -> None:
    running.forkserver.drop()
    for worker in running.workers:
        worker.end()


def _remember(known: deque[str], affinity: str) -> None:
    if affinity in known:
        known.remove(affinity)
    known.append(affinity)
