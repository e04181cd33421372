"""The same question, asked several times at once, is sent once: a group's attempts often end alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class GivenUpError(Exception):
    """`Flights.close` came before the result."""


class _Flight(Generic[T]):
    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.waiting = 0
        self.claimed = False
        self.given_up = False


class Flights(Generic[T]):
    """What is under way, by key. It goes on for as long as one of its askers waits for it."""

    def __init__(self) -> None:
        self._by_key: dict[str, _Flight[T]] = {}
        self._tasks: set[asyncio.Task[T]] = set()

    async def join(self, key: str, start: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """The result of ``start()``, or of that of another asker under way, and whether somebody else has it too.

        One of those who get the result gets it with False: what it cost is then counted once. Errors are given to all.

        Raises:
            GivenUpError: `close` was called meanwhile.
        """
        flight = self._by_key.get(key)
        if flight is None:
            flight = self._take_off(key, start)
        flight.waiting += 1
        try:
            result = await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            if flight.given_up and flight.task.cancelled():  # otherwise the asker is meant
                raise GivenUpError from None
            raise
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                self._land(key, flight)
                flight.task.cancel()
        shared, flight.claimed = flight.claimed, True
        return result, shared

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._tasks)
        for flight in self._by_key.values():
            flight.given_up = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take_off(self, key: str, start: Callable[[], Awaitable[T]]) -> _Flight[T]:
        async def run() -> T:
            return await start()

        flight = self._by_key[key] = _Flight(asyncio.ensure_future(run()))
        self._tasks.add(flight.task)

        def ended(task: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            self._land(key, flight)
            if not task.cancelled():
                task.exception()  # nobody may be left to see it

        flight.task.add_done_callback(ended)
        return flight

    def _land(self, key: str, flight: _Flight[T]) -> None:
        if self._by_key.get(key) is flight:
            del self._by_key[key]
