"""A stop that loses nothing: Ctrl-C, or a part of the run, asks a training loop to stop after its step.

A second Ctrl-C stops at once.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ASKED = "stopping after this step; press Ctrl-C again to stop at once"


class StopButton:
    """``asked`` is what a loop looks at; ``armed`` says that a loop is looking.

    ``pressed`` is the user's wish, ``reason`` that of a part of the run. ``task`` is the run's own, where it has an
    event loop: an interruption cancels it. Raised anywhere in the loop, a `KeyboardInterrupt` would end some other task
    and leave this one half closed.
    """

    def __init__(self) -> None:
        self.armed = False
        self.pressed = False
        self.reason = ""
        self.cancelled = False
        self.task: asyncio.Task[Any] | None = None

    @property
    def asked(self) -> bool:
        return self.pressed or bool(self.reason)

    def request(self, reason: str) -> None:
        """Ask for a stop from within the run, also before a loop looks; the first reason counts."""
        self.reason = self.reason or reason or "a part of the run asked for it"

    def press(self) -> bool:
        """True where the loop was only asked to stop; otherwise the run is interrupted."""
        if self.armed and not self.pressed:
            self.pressed = True
            return True
        task = self.task
        if task is None or task.done() or self.cancelled or asyncio.current_task(task.get_loop()) is task:
            raise KeyboardInterrupt
        self.cancelled = True
        task.get_loop().call_soon_threadsafe(task.cancel)
        return False


@contextmanager
def stop_on_interrupt(say: Callable[[str], None]) -> Iterator[StopButton]:
    """While inside, Ctrl-C presses the button if it is armed; otherwise, and the second time, it interrupts.

    Only in the main thread; elsewhere the button is never pressed.

    Args:
        say: called in a thread of its own.

    Raises:
        KeyboardInterrupt: the run was interrupted.
    """
    button = StopButton()
    if threading.current_thread() is not threading.main_thread():
        yield button
        return

    def press(number: int, frame: FrameType | None) -> None:
        if button.press():  # another thread says it: this one may be in the midst of a write to the same stream
            threading.Thread(target=say, args=(ASKED,)).start()

    before = signal.signal(signal.SIGINT, press)
    try:
        yield button
    except asyncio.CancelledError:
        if button.cancelled:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
