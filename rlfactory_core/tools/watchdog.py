"""Notices a tool that blocks the event loop, on which every other call, model and deadline of the process waits."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path

TASK_NAME = "tool "
"""What the name of an asyncio task begins with that runs a tool; the tool's name follows."""


class Watchdog:
    """A thread that sees whether the running event loop goes on.

    Args:
        say: called in that thread with a sentence about a tool that blocks the loop, once for each tool.
        seconds: how long a tool may block the loop.
    """

    def __init__(self, say: Callable[[str], None], seconds: float = 2.0) -> None:
        self._say, self._seconds = say, seconds
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._named: set[str] = set()
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="tools-watchdog", daemon=True).start()

    def close(self) -> None:
        """The thread ends soon, without being waited for."""
        self._ended.set()

    @property
    def ended(self) -> bool:
        """Whether it was closed, or its event loop stopped."""
        return self._ended.is_set()

    def _watch(self) -> None:
        while self._loop.is_running() and not self._ended.wait(self._seconds / 4):
            goes_on = threading.Event()
            try:
                self._loop.call_soon_threadsafe(goes_on.set)
            except RuntimeError:  # the loop is closed
                break
            if not goes_on.wait(self._seconds / 4):
                self._look(goes_on)
        self._ended.set()

    def _look(self, goes_on: threading.Event) -> None:
        """Report a tool that blocks the event loop; return when the loop is free again."""
        task = asyncio.current_task(self._loop)
        name = "" if task is None else task.get_name()
        is_blocked = name.startswith(TASK_NAME) and not goes_on.wait(self._seconds)
        if is_blocked and asyncio.current_task(self._loop) is task and name not in self._named:
            self._named.add(name)
            frame = sys._current_frames().get(self._loop_thread)
            place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "its line is not known"
            self._say(
                f"{name} blocks the event loop for more than {self._seconds:g} s ({place}): meanwhile no other call "
                "goes on, and no deadline holds. Write it as a plain function (def instead of async def), which runs "
                "in a thread, or await what it waits for"
            )
        while self._loop.is_running() and not self.ended and not goes_on.wait(self._seconds / 4):
            pass
