"""Worker processes for all work that may block, crash or never end: running queries and parsing SQL.

There are as many workers as cores. While queries are slow, more workers are started, so that queries which hang until
their deadline do not delay the others. What makes a query slow is its work, not the time that it takes on a busy
machine. Surplus workers start one after the other, and end when they are idle. Jobs that are known to be slow have
workers of their own, of lower priority: the others keep their databases, and most of the cores.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
from collections import deque
from typing import Any

from rlfactory_core.errors import BackendError
from rlfactory_core.utils.cpu import usable_cores
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.verification.connections import KEPT, Recent
from rlfactory_nl2sql.verification.process import Request, Worker, connect, forkserver
from rlfactory_nl2sql.verification.worker import NETWORK, Access, Job

_IDLE_S = 5.0  # idle time after which a surplus worker ends
_PAUSE = 4.0  # times as long as a start took, before the next surplus worker starts
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
        self._usual = workers or usable_cores()
        self._most = max(most or max(4 * self._usual, _MOST_AT_LEAST), self._usual)
        self._memory_mb = memory_mb
        self._running: dict[int, _Workers] = {}  # by how much lower their priority is

    async def run(
        self,
        job: Job,
        deadline_s: float,
        affinity: str = "",
        *,
        prepare_s: float = 0.0,
        slow: bool = False,
        content: bytes = b"",
    ) -> Any:
        """Run a job and return its result.

        Args:
            deadline_s: seconds from the moment when a worker takes the job.
            prepare_s: with this, ``deadline_s`` is its first query's, and these it may have more, for preparations.
            affinity: jobs with the same affinity go to the same worker where that saves time.
            slow: it goes to workers of lower priority, so that the others are free for jobs that end soon.
            content: a pickled object for ``connections.shared()``, sent once to each worker for all jobs with it.

        Raises:
            QueryError: the job raised it; `Failure.DEADLINE` if it does not end in time, and `Failure.ERROR` if it ends
                its process.
            BackendError: the job raised it, no process can be started, or the pool has been closed.
            WorkerBug: the job failed because of a bug in this plugin; the log has the traceback.
        """
        workers = self._here(_NICE if slow else 0)
        ref = getattr(job, "ref", None)
        if ref is not None:
            workers.widen(ref)
        variables = {name: os.environ[name] for name in (ref.variables if ref else ()) if name in os.environ}
        query_s, seconds = deadline_s if prepare_s else 0.0, deadline_s + prepare_s
        data = pickle.dumps((job, seconds, query_s, variables), pickle.HIGHEST_PROTOCOL)
        answer, ends_soon = workers.loop.create_future(), getattr(job, "ends_soon", False)
        tells_slow = ref is not None and ref.is_file
        return await workers.run(Request(data, content, seconds, query_s, affinity, ends_soon, tells_slow, answer))

    async def close(self) -> None:
        """End all workers. Running and waiting jobs raise `BackendError`."""
        running, self._running = self._running, {}
        for workers in running.values():
            await workers.close()

    def _here(self, nice: int) -> _Workers:
        """The workers for this process and event loop."""
        workers = self._running.get(nice)
        if workers is not None and workers.process == os.getpid() and not workers.loop.is_closed():
            if workers.loop is not asyncio.get_running_loop():
                raise RuntimeError("This WorkerPool is in use on another event loop: close it there, or make another.")
            return workers
        if workers is not None:  # its event loop has ended, or this is a fork, and the workers are its parent's
            workers.drop()
        self._running[nice] = workers = _Workers(self._memory_mb, nice, self._usual, self._most)
        return workers


class _Workers:
    """The workers of one priority, and who gets them. They belong to one process and one event loop."""

    def __init__(self, memory_mb: int, nice: int, usual: int, most: int) -> None:
        self.loop, self.process, self.closed = asyncio.get_running_loop(), os.getpid(), False
        self.forkserver = forkserver(memory_mb, nice)
        self._usual, self._most = usual, most
        self._known: dict[Worker, Recent[str, None]] = {}  # each worker's affinities
        self._idle: dict[Worker, float] = {}  # with the time since when; least recently used first
        self._waiting: deque[Request] = deque()
        self._access = Access()  # what all jobs so far need; a worker with less is replaced

    def widen(self, ref: DatabaseRef) -> None:
        """Let workers reach a database. They cannot be allowed more once they run, so idle ones are replaced now."""
        before = self._access
        self._access |= {os.path.dirname(ref.location) if ref.is_file else NETWORK}
        while self._access != before and self._idle:
            self._end(next(iter(self._idle)))

    async def run(self, request: Request) -> Any:
        """The answer to a request."""
        self._waiting.append(request)
        self._fill()
        try:
            return await request.answer
        except asyncio.CancelledError:
            if request in self._waiting:
                self._waiting.remove(request)
            for worker in [worker for worker in self._known if worker.request is request]:
                self._end(worker)
            self._fill()
            raise

    async def close(self) -> None:
        """End all workers. What runs or waits ends with an error."""
        if self.process != os.getpid():
            self.drop()
            return
        self.closed = True
        running = (worker.request for worker in self._known if worker.request is not None)
        for request in (*running, *self._waiting):
            request.settle(None, BackendError(_CLOSED))
        while self._known:
            self._end(next(iter(self._known)))
        await asyncio.to_thread(self.forkserver.close)

    def drop(self) -> None:
        """Let go of the workers of another process, or of an event loop that has ended."""
        self.forkserver.close()
        for worker in self._known:
            worker.close()

    def _fill(self) -> None:
        """Give workers to the waiting jobs, as many as there are or may be."""
        while self._waiting and not self.closed and (self._idle or self._may_start()):
            if not self._idle:
                try:
                    connection, lifeline = connect(self.forkserver, self._access)
                except BackendError as error:
                    self._waiting.popleft().settle(None, error)
                    continue
                worker = Worker(connection, lifeline, self._access, self._on_free, self._on_lost, self._fill)
                self._known[worker], self._idle[worker] = Recent(KEPT), self.loop.time()
            self._hand()

    def _hand(self) -> None:
        """Give an idle worker to the first waiting job, or to one of the next with an affinity that it knows."""
        first = self._waiting[0]
        near = list(itertools.islice(self._waiting, _LOOK if first.overtaken < _OVERTAKEN else 1))
        pairs = list(itertools.product(reversed(self._idle), near))
        known = (pair for pair in pairs if pair[1].affinity in self._known[pair[0]])
        worker, chosen = next(known, None) or min(pairs, key=lambda pair: self._claims(pair[1].affinity))
        first.overtaken += chosen is not first
        del self._idle[worker]
        self._waiting.remove(chosen)
        self._known[worker].use(chosen.affinity, lambda: None)
        worker.run(chosen)

    def _on_free(self, worker: Worker) -> None:
        if worker.usable and worker.access == self._access:
            self._idle[worker] = self.loop.time()
            if len(self._known) > self._usual:
                self.loop.call_later(_IDLE_S, self._end_surplus)
        else:
            self._end(worker)
        self._fill()

    def _on_lost(self, worker: Worker, began: bool) -> None:
        request = worker.request
        self._end(worker)
        if request is not None and not request.lost:
            request.lost = True
            self._waiting.appendleft(request)
        elif request is not None and began:
            request.settle(None, QueryError(Failure.ERROR, "The query ended the database's engine."))
        elif request is not None:
            request.settle(None, BackendError(f"nl2sql: no worker process starts. {self.forkserver.log()}"))
        self._fill()

    def _claims(self, affinity: str) -> int:
        """The number of workers that know an affinity."""
        return sum(affinity in known for known in self._known.values())

    def _may_start(self) -> bool:
        """Whether another worker may start now.

        The first above the usual number starts at once. Then one starts at a time, and none for some times as long as a
        start took. So starts take a bounded share of a busy machine, where they take long.
        """
        if len(self._known) < self._usual:
            return True
        if len(self._known) >= self._allowed():
            return False
        if len(self._known) == self._usual:
            return True
        newest = max(self._known, key=lambda worker: worker.began)
        if newest.started_at is None:
            return False  # `_fill` is called when it has
        free = newest.started_at + _PAUSE * (newest.started_at - newest.began)
        if free > self.loop.time():
            self.loop.call_at(free, self._fill)
            return False
        return True

    def _allowed(self) -> int:
        """The number of workers allowed now: two more for each slow one, so that the others have half of the cores."""
        now = self.loop.time()
        slow = sum(worker.slow_from is not None and worker.slow_from <= now for worker in self._known)
        return min(self._usual + 2 * slow, self._most)

    def _end_surplus(self) -> None:
        before = self.loop.time() - _IDLE_S
        for worker in [worker for worker, since in self._idle.items() if since <= before]:
            if len(self._known) > self._usual:
                self._end(worker)

    def _end(self, worker: Worker) -> None:
        self._idle.pop(worker, None)
        del self._known[worker]
        worker.end()
        worker.close()
