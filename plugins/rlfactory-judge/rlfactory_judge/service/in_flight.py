"""Equal concurrent questions are sent once: a group's attempts often have equal answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rlfactory_judge.contract import UnavailableError

T = TypeVar("T")


@dataclass(slots=True)
class _InFlight(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0
    claimed: bool = False


class InFlightRequests(Generic[T]):
    """Running requests by key. A request continues while at least one caller waits for it."""

    def __init__(self) -> None:
        self._by_key: dict[str, _InFlight[T]] = {}
        self._tasks: set[asyncio.Task[T]] = set()  # also those that are being cancelled

    async def join(self, key: str, start: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
        """The result of ``start()`` or of an equal running request, and whether another caller has it too.

        Exactly one caller of a request gets False, so that its cost is counted once.

        Raises:
            UnavailableError: `close` was called in the meantime.
        """
        request = self._by_key.get(key)
        if request is None:
            request = self._by_key[key] = _InFlight(asyncio.ensure_future(start()))
            self._tasks.add(request.task)
            request.task.add_done_callback(self._tasks.discard)
        request.waiting += 1
        try:
            result = await asyncio.shield(request.task)
        except asyncio.CancelledError:
            if request.task.cancelled():  # by `close`; otherwise the caller was cancelled
                raise UnavailableError("The judge was closed before it answered.") from None
            raise
        finally:
            request.waiting -= 1
            if request.task.done() or not request.waiting:
                request.task.cancel()
                if self._by_key.get(key) is request:
                    del self._by_key[key]
        shared, request.claimed = request.claimed, True
        return result, shared

    async def close(self) -> None:
        """Cancel all running requests."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
