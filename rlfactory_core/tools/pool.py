"""Threads for blocking functions, made so that one that hangs costs nobody else a place.

``concurrent.futures.ThreadPoolExecutor`` does not fit: a hung thread keeps its place for ever and holds up the
interpreter's exit.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

_Job = tuple["Future[Any]", Callable[[], Any]]


class BlockingPool:
    """As many daemon threads as there are calls at once; idle ones are used again.

    The callers' concurrency limit is the size. A call that was given up (deadline, cancellation) leaves its thread
    behind, as Python cannot kill one; the next call then gets a new thread, until ``max_threads`` are alive, hung ones
    included. From there on calls wait for a thread to come free. A thread that comes back is used again.
    """

    def __init__(self, name: str, max_threads: int = 1024) -> None:
        self._name = name
        self._max_threads = max_threads
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0  # threads without a job, less the jobs that wait for them

    async def run(self, fn: Callable[[], Any]) -> Any:
        """Run ``fn`` in a thread, with the caller's context variables."""
        return await asyncio.wrap_future(self.submit(fn))

    def submit(self, fn: Callable[[], Any]) -> Future[Any]:
        """As `run`, for a caller that does not wait. With one thread, jobs run in the order in which they came."""
        future: Future[Any] = Future()
        context = contextvars.copy_context()
        self._jobs.put((future, lambda: context.run(fn)))
        with self._lock:
            self._idle -= 1
            spawn = self._idle < 0 and self._threads < self._max_threads
            if spawn:
                self._threads += 1
                self._idle += 1
        if spawn:
            threading.Thread(target=self._work, name=f"tool-{self._name}", daemon=True).start()
        return future

    def close(self) -> None:
        """Idle threads end now, busy ones after their job."""
        with self._lock:
            threads, self._threads = self._threads, 0
        for _ in range(threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, fn = job
            if future.set_running_or_notify_cancel():
                _settle(future, fn)
            del job, future, fn  # an idle thread keeps no result alive
            with self._lock:
                self._idle += 1


def _settle(future: Future[Any], fn: Callable[[], Any]) -> None:
    try:
        result = fn()
    except Exception as error:  # noqa: BLE001 it is handed on
        if isinstance(error, StopIteration):  # a future cannot carry it
            error = RuntimeError(f"the function raised {error!r}")
        future.set_exception(error)
    except BaseException as error:  # noqa: BLE001 SystemExit and its like would end the event loop, not the call
        future.set_exception(RuntimeError(f"the function raised {error!r}"))
    else:
        future.set_result(result)
