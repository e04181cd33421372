"""What a tool may know of the trajectory that calls it, and what it may keep for it until the trajectory is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from rlfactory_core.types import Sample

_log = logging.getLogger(__name__)

Made = TypeVar("Made")
END_S = 10.0  # for one thing to be let go of
_GRACE_S = 1.0  # after that, for its cancellation


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Who calls: one object per trajectory, handed to tools that ask for it; the model never sees it."""

    trajectory_id: str
    sample: Sample
    state: dict[str, Any] = field(default_factory=dict)  # the trajectory's own scratch space
    _made: dict[Hashable, asyncio.Future[Any]] = field(default_factory=dict, repr=False)
    _endings: list[Callable[[], Awaitable[None]]] = field(default_factory=list, repr=False)

    async def once(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, Made]]) -> Made:
        """What ``make()`` gives, made once in the trajectory however many calls ask for it at once.

        The making outlives a caller whose deadline passes: the next call finds it done. One that failed is tried again
        by the next call.

        Args:
            key: unique among all tools; the tool object itself is a good part of it.
        """
        making = self._made.get(key)
        if making is None:
            making = self._made[key] = asyncio.ensure_future(make())
            making.add_done_callback(partial(self._forget_failure, key))
        made: Made = await asyncio.shield(making)
        return made

    def _forget_failure(self, key: Hashable, making: asyncio.Future[Any]) -> None:
        # Asking for the exception also keeps asyncio from reporting one that no caller has waited for.
        if (making.cancelled() or making.exception() is not None) and self._made.get(key) is making:
            del self._made[key]

    def on_end(self, let_go: Callable[[], Awaitable[None]]) -> None:
        """Have something let go of when the trajectory is over, whatever ends it; the last one asked for goes first."""
        self._endings.append(let_go)

    async def end(self) -> None:
        """The trajectory is over: what is being made is cancelled, and everything is let go of.

        What does not let go in time is left behind. Failures are logged; they are nobody's result. A cancellation is
        obeyed only once all is done.
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
        await _stop(list(self._made.values()))
        self._made.clear()
        while self._endings:
            letting_go = asyncio.ensure_future(_await(self._endings.pop()))
            await asyncio.wait((letting_go,), timeout=END_S)
            if not letting_go.done():
                _log.warning("a tool did not let go of what it kept for %s in time", self.trajectory_id)
                await _stop([letting_go])
            elif not letting_go.cancelled() and (error := letting_go.exception()) is not None:
                _log.warning("a tool did not let go of what it kept for %s", self.trajectory_id, exc_info=error)


async def _await(let_go: Callable[[], Awaitable[None]]) -> None:
    await let_go()


async def _stop(futures: list[asyncio.Future[Any]]) -> None:
    for future in futures:
        future.cancel()
    if futures:
        await asyncio.wait(futures, timeout=_GRACE_S)
