"""Ctrl-C that loses nothing: the first one asks a training loop to stop after its step, the second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class StopButton:
    """``pressed`` is what a loop looks at; ``armed`` says that a loop is looking."""

    def __init__(self) -> None:
        self.armed = False
        self.pressed = False


@contextmanager
def stop_on_interrupt(say: Callable[[str], None]) -> Iterator[StopButton]:
    """While inside, Ctrl-C presses the button if it is armed; otherwise, and the second time, it interrupts.

    Only in the main thread; elsewhere the button is never pressed.
    """
    button = StopButton()
    if threading.current_thread() is not threading.main_thread():
        yield button
        return

    def press(number: int, frame: FrameType | None) -> None:
        if button.armed and not button.pressed:
            button.pressed = True
            say("stopping after this step; press Ctrl-C again to stop at once")
            return
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield button
    finally:
        signal.signal(signal.SIGINT, before)
