"""What a tool may know of the trajectory that calls it, and what it may keep for it until the trajectory is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rlfactory_core.types import Sample

_log = logging.getLogger(__name__)

Made = TypeVar("Made")
END_S = 10.0  # for one thing to be let go of


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
        if key not in self._made:
            self._made[key] = asyncio.ensure_future(make())
        making = self._made[key]
        try:
            made: Made = await asyncio.shield(making)
        except BaseException:
            if making.done() and self._made.get(key) is making:
                del self._made[key]
            raise
        return made

    def on_end(self, let_go: Callable[[], Awaitable[None]]) -> None:
        """Have something let go of when the trajectory is over, whatever ends it; the last one asked for goes first."""
        self._endings.append(let_go)

    async def end(self) -> None:
        """The trajectory is over. A failure to let go is logged; it is nobody's result."""
        for making in self._made.values():
            making.cancel()
        await asyncio.gather(*self._made.values(), return_exceptions=True)
        self._made.clear()
        while self._endings:
            try:
                await asyncio.wait_for(self._endings.pop()(), END_S)
            except Exception:  # noqa: BLE001 one that cannot be let go of does not keep the others
                _log.warning("a tool did not let go of what it kept for %s", self.trajectory_id, exc_info=True)
