"""Results that are found once for all who ask."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Search(Generic[V]):
    task: asyncio.Future[V]
    callers: int = 0


class Shared(Generic[K, V]):
    """Keeps results by key. Concurrent callers share one search, which is cancelled when all of them have given up.

    Args:
        most: the greatest sum of the sizes of kept results; those used last are kept.
        size: of a result; None: it is not kept.
    """

    def __init__(self, most: int, size: Callable[[V], int | None] = lambda _: 1) -> None:
        self._most, self._size = most, size
        self._held = 0
        self._found: OrderedDict[K, V] = OrderedDict()
        self._searches: dict[K, _Search[V]] = {}

    async def get(self, key: K, find: Callable[[], Awaitable[V]]) -> V:
        """The result for a key; raises what ``find`` raises, and then does not keep it."""
        if key in self._found:
            self._found.move_to_end(key)
            return self._found[key]
        if key not in self._searches:
            self._searches[key] = _Search(asyncio.ensure_future(self._keep(key, find)))
        search = self._searches[key]
        search.callers += 1
        try:
            return await asyncio.shield(search.task)
        finally:
            search.callers -= 1
            if not search.callers:
                search.task.cancel()  # nothing happens if it has ended
                if self._searches.get(key) is search:
                    del self._searches[key]

    async def _keep(self, key: K, find: Callable[[], Awaitable[V]]) -> V:
        found = await find()
        if (size := self._size(found)) is not None:
            self._found[key] = found
            self._held += size
        while self._held > self._most:
            self._held -= self._size(self._found.popitem(last=False)[1]) or 0
        return found
