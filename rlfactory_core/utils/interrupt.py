"""Stops a run without losing work: a signal or a part of the run asks it to stop after its step.

A second signal stops it at once.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

NOTICE = "stopping after this step; press Ctrl-C again to stop at once"
# Ctrl-C; the system shuts down; the terminal is closed; SLURM's warning before a job's time is over
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class InterruptedRun(KeyboardInterrupt):
    """A signal ended the run at once; the argument is the exit code for it."""


class StopRequest:
    """A loop sets ``armed`` while it checks ``requested`` after each step.

    ``interrupted`` is set by a signal, ``reason`` by a part of the run; ``warning`` is what the guard has found, if it
    has requested the stop. ``task`` is the run's asyncio task, if it has
    one; an interruption cancels it. A `KeyboardInterrupt` raised within the event loop could end another task instead.
    ``exit_code`` is that of a program which the first signal ended: 128 and the signal's number.
    """

    def __init__(self) -> None:
        self.armed = False
        self.interrupted = False
        self.reason = self.warning = ""
        self.cancelled = False
        self.exit_code = 128 + signal.SIGINT
        self.task: asyncio.Task[Any] | None = None

    @property
    def requested(self) -> bool:
        return self.interrupted or bool(self.reason)

    def request(self, reason: str, *, warning: str = "") -> None:
        """Request a stop from within the run, also before a loop is armed; the first reason is kept."""
        if not self.reason:
            self.reason, self.warning = reason or "a part of the run requested it", warning

    def trigger(self) -> bool:
        """Handle Ctrl-C: returns True if the loop is asked to stop after its step; otherwise interrupts the run."""
        if self.armed and not self.interrupted:
            self.interrupted = True
            return True
        task = self.task
        if task is None or task.done() or self.cancelled or asyncio.current_task(task.get_loop()) is task:
            raise InterruptedRun(self.exit_code)
        self.cancelled = True
        task.get_loop().call_soon_threadsafe(task.cancel)
        return False


@contextmanager
def stop_on_interrupt(say: Callable[[str], None]) -> Iterator[StopRequest]:
    """Within the context, a signal triggers the request if it is armed; otherwise, and the second time, it interrupts.

    This works in the main thread only. A signal that the process ignores, as SIGHUP with ``nohup``, stays ignored.

    Args:
        say: shows a notice; called in a thread of its own.

    Raises:
        InterruptedRun: the run was interrupted.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def trigger(number: int, frame: FrameType | None) -> None:
        if not request.interrupted:
            request.exit_code = 128 + number
        if request.trigger():  # in another thread, because this one may be writing to the same stream
            threading.Thread(target=say, args=(NOTICE,)).start()

    heeded = (number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN)
    before = {number: signal.signal(number, trigger) for number in heeded}
    try:
        yield request
    except asyncio.CancelledError:
        if request.cancelled:
            raise InterruptedRun(request.exit_code) from None
        raise
    except KeyboardInterrupt:
        raise InterruptedRun(request.exit_code) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
