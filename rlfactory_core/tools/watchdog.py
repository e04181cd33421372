"""Notices a tool that blocks the event loop, on which every other call, model and deadline of the process waits."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TASK_NAME = "tool "
"""What the name of an asyncio task begins with that runs a tool; the tool's name follows."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A tool that has blocked the event loop for ``seconds``, and the line that it runs."""

    tool: str
    seconds: float
    place: str

    def __str__(self) -> str:
        return (
            f"tool {self.tool} blocks the event loop for more than {self.seconds:g} s ({self.place}): meanwhile no "
            "other call goes on, and no deadline holds. Write it as a plain function (def instead of async def), which "
            "runs in a thread, or await what it waits for"
        )


class Watchdog:
    """A thread that sees whether the running event loop goes on.

    Args:
        found: called in that thread, once for each tool.
        seconds: how long a tool may keep the loop.
    """

    def __init__(self, found: Callable[[Blocked], None], seconds: float = 2.0) -> None:
        self._found, self._seconds = found, seconds
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
        task = self._running()
        if task is not None and not goes_on.wait(self._seconds) and self._running() is task:
            name = task.get_name().removeprefix(TASK_NAME)
            if name not in self._named:
                self._named.add(name)
                self._found(Blocked(name, self._seconds, self._place()))
        while self._loop.is_running() and not self.ended and not goes_on.wait(self._seconds / 4):
            pass

    def _running(self) -> asyncio.Task[object] | None:
        """The task that the loop is at, if it runs a tool."""
        task = asyncio.current_task(self._loop)
        return task if task is not None and task.get_name().startswith(TASK_NAME) else None

    def _place(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "its line is not known"
