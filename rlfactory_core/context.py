"""What a tool knows of the trajectory that calls it (`ToolContext`), and a task of its run (`RunContext`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rlfactory_core.types import Sample
from rlfactory_core.utils.aio import cancelled, in_time

_log = logging.getLogger(__name__)

Made = TypeVar("Made")
END_S = 10.0  # to release one resource


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The calling trajectory, for tools with a parameter of this type. The model does not see it."""

    trajectory_id: str
    sample: Sample
    state: dict[str, Any] = field(default_factory=dict)  # of this trajectory, for its tools
    _made: dict[Hashable, asyncio.Task[Any]] = field(default_factory=dict, repr=False)
    _endings: list[Callable[[], Awaitable[None]]] = field(default_factory=list, repr=False)

    async def once(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, Made]]) -> Made:
        """The result of ``make()``, which runs once in the trajectory, also for concurrent callers.

        If a caller's deadline passes, ``make()`` goes on for the next caller. If it fails, the next caller starts it
        again.

        Args:
            key: unique among all tools; it may include the tool object itself.
        """
        making = self._made.get(key)
        if making is None:
            making = self._made[key] = asyncio.create_task(make())
            making.add_done_callback(partial(self._forget_failure, key))
        made: Made = await asyncio.shield(making)
        return made

    def _forget_failure(self, key: Hashable, making: asyncio.Task[Any]) -> None:
        # Reading the exception also prevents asyncio's report of an exception that was never retrieved.
        if (making.cancelled() or making.exception() is not None) and self._made.get(key) is making:
            del self._made[key]

    def on_end(self, let_go: Callable[[], Awaitable[None]]) -> None:
        """Call ``let_go`` when the trajectory ends, for any reason; the last one registered is called first."""
        self._endings.append(let_go)

    async def end(self) -> None:
        """End the trajectory: cancel what is still being made, and release all resources.

        A release that takes too long is abandoned. Failures are logged. If the caller is cancelled, the cancellation
        takes effect after all releases.
        """
        if not self._made and not self._endings:
            return
        ending = asyncio.ensure_future(self._end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait((ending,))
            raise

    async def _end(self) -> None:
        await asyncio.gather(*map(cancelled, self._made.values()))
        self._made.clear()
        while self._endings:
            try:
                await in_time(self._endings.pop()(), END_S, f"a tool's release for {self.trajectory_id}")
            except (TimeoutError, asyncio.CancelledError):
                _log.warning("a tool did not release its resources for %s in time", self.trajectory_id)
            except Exception:  # noqa: BLE001 - the boundary to a tool's code, which may fail in any way
                _log.warning("a tool failed to release its resources for %s", self.trajectory_id, exc_info=True)


def _ignore(reason: str) -> None:
    """Does nothing, because without training there is no step after which to stop."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """The run of a task; the defaults are for a task that is played outside of a run.

    Args:
        folder: the run's folder, the same in all its processes, also on other machines; None: there is no folder.
        request_stop: stops the run after the current step, as Ctrl-C does; before the first step, the run stops at
            once, and an evaluation goes on to its end. The argument is a sentence that gives the user the reason. It
            returns at once, and may be called in any process or thread and repeatedly; the first reason counts.
        sections: the configuration of each plugin in use, by name, as an object of the class that the plugin registers
            (``rlfactory_config_sections``).
    """

    folder: Path | None = None
    request_stop: Callable[[str], None] = _ignore
    sections: Mapping[str, Any] = field(default_factory=dict)
