"""The groups of this process that are being played, and which of them the next step trains."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from rlfactory_core.types import Group


@dataclass(slots=True)
class Flight:
    """A group that is being played, waits for its step, or is trained by it."""

    position: int  # of its prompt in the run
    due: int  # the last step that may train it
    task: asyncio.Task[Group]
    started: float = field(default_factory=time.perf_counter)
    ended: float = 0.0

    @property
    def group(self) -> Group:
        """Once it is complete; raises what ended its play."""
        return self.task.result()


class GroupQueue:
    """Gives groups in the order in which they are complete, and none too late.

    A group may be trained at most ``staleness`` versions of the weights after its first token. A step takes a complete
    group only if the steps until then still have room for all older ones; otherwise it waits for an older one. As many
    groups have to be started before each step as it takes.

    Args:
        size: groups of this process in a step.
        staleness: 0 takes the groups of one step after the other.
    """

    def __init__(self, size: int, staleness: int) -> None:
        self._size, self._staleness = size, staleness
        self._flights: list[Flight] = []
        self._news = asyncio.Event()

    @property
    def positions(self) -> list[int]:
        """Those of the groups that no step has taken."""
        return sorted(flight.position for flight in self._flights)

    def add(self, position: int, step: int, task: asyncio.Task[Group]) -> None:
        """Add a task that began when ``step`` was the next one to be trained."""
        flight = Flight(position, step + self._staleness, task)
        self._flights.append(flight)

        def ended(_task: asyncio.Task[Group]) -> None:
            flight.ended = time.perf_counter()
            self._news.set()

        task.add_done_callback(ended)

    async def take(self, step: int) -> list[Flight]:
        """The groups of a step, by position.

        Raises:
            Exception: what ended the play of a group.
        """
        taken: list[Flight] = []
        while len(taken) < self._size:
            self._news.clear()
            flight = self._first_ready(step, self._size - len(taken))
            if flight is None:
                await self._news.wait()
                continue
            self._flights.remove(flight)
            flight.task.result()  # raises
            taken.append(flight)
        return sorted(taken, key=lambda each: each.position)

    async def close(self) -> None:
        """Cancel what is being played."""
        for flight in self._flights:
            flight.task.cancel()
        await asyncio.gather(*(flight.task for flight in self._flights), return_exceptions=True)

    def _first_ready(self, step: int, room: int) -> Flight | None:
        """The group that was complete first, of those that may be taken; one that has failed comes before all."""
        done = sorted((flight for flight in self._flights if flight.task.done()), key=lambda flight: flight.ended)
        for flight in done:
            if flight.task.cancelled() or flight.task.exception() is not None:
                return flight
        return next((flight for flight in done if self._leaves_room(flight, step, room)), None)

    def _leaves_room(self, flight: Flight, step: int, room: int) -> bool:
        """Whether older groups still find a place in time if this step has ``room`` places, and this one takes one."""
        for after in range(flight.due - step):  # steps of which this group is not due
            due = sum(each.due <= step + after for each in self._flights)  # groups that have to be trained by then
            if due > room - 1 + after * self._size:
                return False
        return True
