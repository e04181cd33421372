"""Worker processes for all work that may block, crash or never end: running queries and parsing SQL.

There are as many workers as cores. While queries are slow, more workers are started, so that queries which hang until
their deadline do not delay the others. Surplus workers end when they are idle. Jobs that are known to be slow have
workers of their own, of lower priority: the others keep their databases, and most of the cores.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import deque
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import BackendError
from rlfactory_core.utils.cpu import usable_cores
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.verification.process import ForkServer, Worker, WorkerLost, needed
from rlfactory_nl2sql.verification.worker import Access, Job

_log = logging.getLogger(__name__)

_GROW_S = 0.05  # while jobs wait, between two looks at which workers are slow
_IDLE_S = 5.0  # idle time after which a surplus worker ends
_KNOWN = 128  # affinities that a worker is assumed to have cached: as many golds' databases as it keeps
_LOOK = 64  # waiting jobs among which a free worker looks for a known affinity
_OVERTAKEN = 16  # times that a waiting job may be overtaken
_MOST_AT_LEAST = 32
_NICE = 10  # by how much the priority of workers for slow jobs is lower
_CLOSED = "nl2sql: the pool of workers has been closed."


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
        self._running: dict[int, _Running] = {}  # by how much lower the priority of its workers is

    async def run(self, job: Job, deadline_s: float, affinity: str = "", *, slow: bool = False) -> Any:
        """Run a job and return its result.

        Args:
            deadline_s: seconds from the moment when a worker takes the job.
            affinity: jobs with the same affinity go to the same worker where that saves time.
            slow: it goes to workers of lower priority, so that the others are free for jobs that end soon.

        Raises:
            QueryError: the job raised it; `Failure.DEADLINE` if it does not end in time, and `Failure.ERROR` if it ends
                its process.
            BackendError: the job raised it, no process can be started, or the pool has been closed.
            WorkerBug: the job failed because of a bug in this plugin; the log has the traceback.
        """
        running = self._started(_NICE if slow else 0)
        running.widen(needed(job))
        for last in (False, True):  # other workers may end the first one, if memory is short
            worker = await running.take(affinity)
            try:
                return await worker.run(job, deadline_s)
            except WorkerLost as lost:
                if running.closed:
                    raise BackendError(_CLOSED) from None
                if last and lost.began:
                    raise QueryError(Failure.ERROR, "The query ended the database's engine.") from None
                if last:
                    said = running.forkserver.error_output()
                    raise BackendError(f"nl2sql: no worker process starts. {said}") from None
            finally:
                running.give(worker)
        raise AssertionError  # the second attempt returns or raises

    async def close(self) -> None:
        """End all workers. Running and waiting jobs raise `BackendError`."""
        ended, self._running = self._running, {}
        for running in ended.values():
            if running.process != os.getpid():
                running.drop()
            else:
                running.end()
                await asyncio.to_thread(running.forkserver.close)

    def _started(self, nice: int) -> _Running:
        running = self._running.get(nice)
        if running is not None and running.process == os.getpid() and not running.loop.is_closed():
            if running.loop is not asyncio.get_running_loop():
                raise RuntimeError("This WorkerPool is in use on another event loop: close it there, or make another.")
            return running
        if running is not None:  # its event loop has ended, or this is a fork, and the workers are its parent's
            running.drop()
        running = self._running[nice] = _Running(self._workers, self._most, self._memory_mb, nice)
        return running


@dataclass(slots=True, eq=False)
class _Waiting:
    """A job that waits for a worker."""

    worker: asyncio.Future[Worker]
    affinity: str
    overtaken: int = 0


class _Running:
    """The workers of a pool in use, and who gets them. It belongs to one process and one event loop."""

    def __init__(self, usual: int, most: int, memory_mb: int, nice: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.process = os.getpid()
        self.closed = False
        self._usual, self._most, self._memory_mb, self._nice = usual, most, memory_mb, nice
        self.forkserver = ForkServer(memory_mb, nice)
        self._workers: dict[Worker, dict[str, None]] = {}  # with their known affinities, least recently used first
        self._idle: dict[Worker, float] = {}  # with the time since when; least recently used first
        self._waiting: deque[_Waiting] = deque()
        self._growth: asyncio.TimerHandle | None = None
        self._access = Access()  # what all jobs so far need; a worker with less is replaced

    def widen(self, access: Access) -> None:
        """Let workers reach this too. They cannot be allowed more once they run, so idle ones are replaced now."""
        self._access, before = self._access | access, self._access
        while self._access != before and self._idle:
            self._end(next(iter(self._idle)))

    async def take(self, affinity: str) -> Worker:
        """A worker for one job."""
        waiting = _Waiting(self.loop.create_future(), affinity)
        self._waiting.append(waiting)
        self._fill()
        try:
            return await waiting.worker
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif not waiting.worker.cancelled() and not waiting.worker.exception():
                self.give(waiting.worker.result())
            raise

    def give(self, worker: Worker) -> None:
        """Take a worker back."""
        if worker.usable and worker.access == self._access and not self.closed:
            self._idle[worker] = self.loop.time()
            if len(self._workers) > self._usual:
                self.loop.call_later(_IDLE_S, self._end_surplus)
        else:
            self._end(worker)
        self._fill()

    def end(self) -> None:
        """End all workers, except for the fork server. What runs or waits ends with an error."""
        self.closed = True
        if self._growth is not None:
            self._growth.cancel()
        for worker in list(self._idle):
            self._end(worker)
        for worker in self._workers:
            worker.disconnect()
        for waiting in self._waiting:
            if not waiting.worker.done():
                waiting.worker.set_exception(BackendError(_CLOSED))

    def drop(self) -> None:
        """Let go of the workers of another process, or of an event loop that has ended."""
        self.forkserver.close()
        for worker in self._workers:
            worker.end()

    def _fill(self) -> None:
        """Give workers to the waiting jobs, as many as there are or may be."""
        while self._waiting and not self.closed and (self._idle or len(self._workers) < self._allowed()):
            if not self._idle:
                try:
                    self._start()
                except BackendError as error:
                    self._waiting.popleft().worker.set_exception(error)
                    continue
            self._hand()
        if self._waiting and self._growth is None and not self.closed:
            self._growth = self.loop.call_later(_GROW_S, self._grow)

    def _grow(self) -> None:
        """While jobs wait, check shortly afterwards whether more workers are allowed."""
        self._growth = None
        self._fill()

    def _hand(self) -> None:
        """Give an idle worker to the first waiting job, or to one of the next with an affinity that it knows."""
        first = self._waiting[0]
        near = list(itertools.islice(self._waiting, _LOOK if first.overtaken < _OVERTAKEN else 1))
        pairs = list(itertools.product(reversed(self._idle), near))
        known = (pair for pair in pairs if pair[1].affinity in self._workers[pair[0]])
        worker, chosen = next(known, None) or min(pairs, key=lambda pair: self._claims(pair[1].affinity))
        first.overtaken += chosen is not first
        del self._idle[worker]
        self._waiting.remove(chosen)
        knows = self._workers[worker]
        knows.pop(chosen.affinity, None)
        knows[chosen.affinity] = None
        if len(knows) > _KNOWN:
            del knows[next(iter(knows))]
        chosen.worker.set_result(worker)

    def _claims(self, affinity: str) -> int:
        """The number of workers that know an affinity."""
        return sum(affinity in known for known in self._workers.values())

    def _allowed(self) -> int:
        """The number of workers allowed now: two more for each slow one, so that the others have half of the cores."""
        now = self.loop.time()
        slow = sum(worker.slow_from is not None and worker.slow_from < now for worker in self._workers)
        return min(self._usual + 2 * slow, self._most)

    def _start(self) -> None:
        if not self.forkserver.alive:
            _log.warning("the fork server of the nl2sql workers was lost; a new one is started")
            self.forkserver.close()
            self.forkserver = ForkServer(self._memory_mb, self._nice)
        worker = self.forkserver.start(self._access)
        self._workers[worker] = {}
        self._idle[worker] = self.loop.time()

    def _end_surplus(self) -> None:
        before = self.loop.time() - _IDLE_S
        for worker in [worker for worker, since in self._idle.items() if since <= before]:
            if len(self._workers) > self._usual:
                self._end(worker)

    def _end(self, worker: Worker) -> None:
        self._idle.pop(worker, None)
        del self._workers[worker]
        worker.end()
