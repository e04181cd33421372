"""Deadlines of many calls, with one timer of the event loop: one for each call takes a tenth of the call's own work."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

from rlfactory_core.utils.aio import end


class Deadlines:
    """Ends futures whose time is over. It belongs to the running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap; its head is never done for long
        self._number = count()  # so that no futures are compared
        self._timer: asyncio.TimerHandle | None = None

    def add(self, over: asyncio.Future[None], seconds: float) -> None:
        """``over`` gets its result in so many seconds, if nobody ends it before."""
        ends = self._loop.time() + seconds
        while self._pending and self._pending[0][2].done():
            heapq.heappop(self._pending)
        heapq.heappush(self._pending, (ends, next(self._number), over))
        if self._timer is None or ends < self._timer.when():
            self._set_timer()

    def _ring(self) -> None:
        self._timer, now = None, self._loop.time()
        while self._pending and (self._pending[0][0] <= now or self._pending[0][2].done()):
            end(heapq.heappop(self._pending)[2])
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._pending[0][0], self._ring) if self._pending else None
