"""Equal concurrent questions are sent once: a group's attempts often have equal answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


class GivenUpError(Exception):
    """`InFlightRequests.close` was called before the result."""


@dataclass(slots=True)
class _InFlight(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0
    claimed: bool = False


class InFlightRequests(Generic[T]):
    """Running requests by key. A request continues while at least one caller waits for it."""

    def __init__(self) -> None:
        self._by_key: dict[str, _InFlight[T]] = {}
        self._tasks: set[asyncio.Task[T]] = set()

    async def join(self, key: str, start: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """The result of ``start()`` or of an equal running request, and whether another caller has it too.

        Exactly one caller of a request gets False, so that its cost is counted once. All callers get errors.

        Raises:
            GivenUpError: `close` was called in the meantime.
        """
        request = self._by_key.get(key)
        if request is None:
            request = self._start(key, start)
        request.waiting += 1
        try:
            result = await asyncio.shield(request.task)
        except asyncio.CancelledError:
            if request.task.cancelled():  # by `close`; otherwise the caller was cancelled
                raise GivenUpError from None
            raise
        finally:
            request.waiting -= 1
            if not request.waiting and not request.task.done():
                self._remove(key, request)
                request.task.cancel()
        shared, request.claimed = request.claimed, True
        return result, shared

    async def close(self) -> None:
        """Cancel all running requests."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, key: str, start: Callable[[], Awaitable[T]]) -> _InFlight[T]:
        async def run() -> T:
            return await start()

        request = self._by_key[key] = _InFlight(asyncio.ensure_future(run()))
        self._tasks.add(request.task)

        def ended(task: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            self._remove(key, request)
            if not task.cancelled():
                task.exception()  # there may be no caller left to retrieve it

        request.task.add_done_callback(ended)
        return request

    def _remove(self, key: str, request: _InFlight[T]) -> None:
        if self._by_key.get(key) is request:
            del self._by_key[key]
