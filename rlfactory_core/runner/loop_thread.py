"""An event loop in a thread of its own, for synchronous callers with a deadline."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Coroutine
from contextlib import suppress
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, TypeVar

from rlfactory_core.errors import DeadlineError

Value = TypeVar("Value")


class LoopThread:
    """Runs coroutines. The caller stops waiting at the deadline, even if a coroutine blocks the loop.

    The thread is a daemon, so that a coroutine that never ends does not keep the process alive.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended = False
        self._late: list[Coroutine[Any, Any, Any]] = []  # those that did not end in time
        self._thread = threading.Thread(target=self._run, name="rlfactory-bench", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Run until `close`. SystemExit raised by a task is delivered to its awaiter and does not stop the loop."""
        while not self._ended:
            with suppress(SystemExit):
                self._loop.run_forever()
                return

    def run(self, work: Coroutine[Any, Any, Value], deadline_s: float, what: str) -> Value:
        """The coroutine's result.

        Args:
            what: names the work in the error, such as ``close()``.

        Raises:
            RuntimeError: it calls ``sys.exit``.
            DeadlineError: it did not end in time. It is cancelled; if it blocks the loop, this thread is lost.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(deadline_s)
        except TimeoutError:
            if future.done():
                raise  # a TimeoutError of the coroutine itself
            future.cancel()
            self._late.append(work)
            raise DeadlineError(f"{what} did not end within {deadline_s:g} s") from None
        except SystemExit as error:
            text = f"sys.exit({error.code!r}) is called, which would end the whole run: raise an exception instead"
            raise RuntimeError(text).with_traceback(error.__traceback__) from None
        except BaseException:
            future.cancel()
            raise

    def close(self, deadline_s: float = 10.0) -> bool:
        """End the loop and its threads; returns False if a coroutine does not end."""
        try:
            self.run(_finish(), deadline_s, "the event loop's end")
        except DeadlineError:
            self._end(deadline_s)
            return False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(deadline_s)
        if self._thread.is_alive():
            return False
        self._loop.close()
        return True

    def _end(self, deadline_s: float) -> None:
        """Raise SystemExit in the lost thread, if it runs Python code.

        A thread that is in C++ code, such as torch's, at the interpreter's end would abort the process.
        """
        self._ended = True
        self._loop.set_exception_handler(lambda _loop, _context: None)  # nobody awaits the tasks that this ends
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(SystemExit)
        )
        self._thread.join(deadline_s)
        if self._thread.is_alive():
            return
        for work in self._late:
            if getcoroutinestate(work) == CORO_CREATED:  # the loop never came to it
                work.close()
        self._loop.close()


async def _finish() -> None:
    """Do what `asyncio.run` does at its end."""
    loop = asyncio.get_running_loop()
    rest = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
