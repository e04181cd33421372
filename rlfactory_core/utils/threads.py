"""Threads for blocking functions, in which a function that hangs does not block others.

``concurrent.futures.ThreadPoolExecutor`` does not fit, because a hung thread occupies one of its few places for ever,
and keeps `asyncio.run` and the interpreter from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any

__all__ = ["BlockingPool", "DaemonExecutor"]

_Job = tuple["Future[Any]", Callable[[], Any]]


class BlockingPool:
    """As many daemon threads as there are concurrent calls; idle threads are used again.

    The callers limit the concurrency. A call that is abandoned (deadline, cancellation) leaves its thread running,
    because Python cannot kill one. The next call then gets a new thread, until ``max_threads`` are alive, hung ones
    included; after that, calls wait for a free thread. A thread whose call returns late is used again.
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
        """As `run`, for a caller that does not wait. With one thread, jobs run in the order of submission."""
        future: Future[Any] = Future()
        context = contextvars.copy_context()
        with self._lock:
            jobs = self._jobs
            jobs.put((future, lambda: context.run(fn)))
            self._idle -= 1
            spawn = self._idle < 0 and self._threads < self._max_threads
            if spawn:
                self._threads += 1
                self._idle += 1
        if spawn:
            threading.Thread(target=self._work, args=(jobs,), name=f"tool-{self._name}", daemon=True).start()
        return future

    def close(self) -> None:
        """Idle threads end now, busy ones after their job. A later call starts new ones."""
        with self._lock:
            jobs, threads = self._jobs, self._threads
            self._jobs, self._threads, self._idle = SimpleQueue(), 0, 0
        for _ in range(threads):
            jobs.put(None)

    def _work(self, jobs: SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None:
            future, fn = job
            result = error = None
            if wanted := future.set_running_or_notify_cancel():
                result, error = _outcome(fn)
            with self._lock:  # before the answer is out, so that the caller's next call finds this thread idle
                self._idle += jobs is self._jobs
            if error is not None:
                future.set_exception(error)
            elif wanted:
                future.set_result(result)
            del job, future, fn, result, error  # an idle thread keeps no result alive


class DaemonExecutor(ThreadPoolExecutor):
    """An event loop's default executor, for ``asyncio.to_thread`` in code of others: a `BlockingPool`."""

    def __init__(self) -> None:
        super().__init__()
        self._pool = BlockingPool("thread")

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._pool.submit(partial(fn, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Waits for nothing, because a function may hang."""
        self._pool.close()


def _outcome(fn: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return fn(), None
    except StopIteration as error:  # a future cannot carry it
        return None, RuntimeError(f"the function raised {error!r}")
    except Exception as error:  # noqa: BLE001 - it is passed on
        return None, error
    except BaseException as error:  # noqa: BLE001 - SystemExit would end the event loop and not only the call
        return None, RuntimeError(f"the function raised {error!r}")
