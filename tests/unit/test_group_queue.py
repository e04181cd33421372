"""Which groups a step trains: those that are complete first, and none too late."""

from __future__ import annotations

import asyncio
import random

import pytest

pytest.importorskip("torch", reason="the embedded engine needs rlfactory-core[local]")

from rlfactory_core.training.playing import GroupQueue
from rlfactory_core.types import Group, Sample


class Plays:
    """Groups that are complete when the test says so."""

    def __init__(self) -> None:
        self.open: dict[int, asyncio.Event] = {}

    def start(self, position: int) -> asyncio.Task[Group]:
        self.open[position] = asyncio.Event()

        async def play() -> Group:
            await self.open[position].wait()
            return Group(Sample(str(position), ""), ())

        return asyncio.create_task(play())

    async def complete(self, *positions: int) -> None:
        """One after the other."""
        for position in positions:
            self.open[position].set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)


def started(queue: GroupQueue, plays: Plays, step: int, *positions: int) -> None:
    for position in positions:
        queue.add(position, step, plays.start(position))


async def taken(queue: GroupQueue, step: int) -> list[int]:
    return [each.position for each in await queue.take(step)]


def test_on_policy_a_step_has_its_own_groups_in_their_order() -> None:
    async def play() -> None:
        queue, plays = GroupQueue(3, 0), Plays()
        started(queue, plays, 1, 0, 1, 2)
        await plays.complete(2, 0)
        waiting = asyncio.create_task(taken(queue, 1))
        await asyncio.sleep(0)
        assert not waiting.done()
        await plays.complete(1)
        assert await waiting == [0, 1, 2]

    asyncio.run(play())


def test_what_is_complete_first_is_trained_first() -> None:
    async def play() -> None:
        queue, plays = GroupQueue(2, 1), Plays()
        started(queue, plays, 1, 0, 1, 2, 3)
        await plays.complete(3, 1, 0)
        assert await taken(queue, 1) == [1, 3]
        assert queue.positions == [0, 2]
        await plays.complete(2)

    asyncio.run(play())


def test_a_group_that_would_become_too_old_is_waited_for() -> None:
    async def play() -> None:
        queue, plays = GroupQueue(1, 1), Plays()
        started(queue, plays, 1, 0, 1)
        await plays.complete(1)
        assert await taken(queue, 1) == [1]
        started(queue, plays, 2, 2)
        await plays.complete(2)
        waiting = asyncio.create_task(taken(queue, 2))  # the group 0 began one version before, the group 2 has time
        await asyncio.sleep(0)
        assert not waiting.done()
        await plays.complete(0)
        assert await waiting == [0]
        assert await taken(queue, 3) == [2]

    asyncio.run(play())


@pytest.mark.parametrize("staleness", [0, 1, 2, 5])
def test_no_group_is_lost_or_too_old_whatever_the_order(staleness: int) -> None:
    size, steps = 3, 40

    async def play(seed: int) -> list[tuple[int, int]]:
        rng, queue, plays = random.Random(seed), GroupQueue(size, staleness), Plays()
        begun: dict[int, int] = {}
        trained: list[tuple[int, int]] = []
        batches = iter(range(steps))
        for step in range(1, steps + 1):
            for batch in [next(batches, None) for _ in range(1 + staleness if step == 1 else 1)]:
                if batch is not None:
                    positions = range(batch * size, (batch + 1) * size)
                    begun |= dict.fromkeys(positions, step - 1)
                    started(queue, plays, step, *positions)
            taking = asyncio.create_task(queue.take(step))
            while not taking.done():
                left = [position for position, event in plays.open.items() if not event.is_set()]
                await plays.complete(*rng.sample(left, min(len(left), 1)))
                await asyncio.sleep(0)
            trained += [(each.position, step - 1 - begun[each.position]) for each in taking.result()]
        return trained

    for seed in range(5):
        trained = asyncio.run(play(seed))
        assert sorted(position for position, _ in trained) == list(range(size * steps))
        assert max(lag for _, lag in trained) <= staleness


def test_a_play_that_fails_is_not_waited_around() -> None:
    async def play() -> None:
        queue, plays = GroupQueue(1, 1), Plays()
        started(queue, plays, 1, 0)

        async def fail() -> Group:
            raise ValueError("no such sample")

        queue.add(1, 1, asyncio.create_task(fail()))
        with pytest.raises(ValueError, match="no such sample"):
            await queue.take(1)
        await queue.close()

    asyncio.run(play())
