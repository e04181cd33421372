"""One timer for the deadlines of all calls: each ends in its turn, whatever the order in which they came."""

from __future__ import annotations

import asyncio
import gc
import weakref

from rlfactory_core.tools.deadlines import Deadlines
from rlfactory_core.utils.aio import end

FAR = 3600.0


def test_deadlines_end_in_the_order_of_their_times() -> None:
    ended: list[str] = []

    async def main() -> None:
        loop, deadlines = asyncio.get_running_loop(), Deadlines()
        futures = {}
        for name, seconds in {"never": FAR, "late": 0.02, "first": 0.0, "middle": 0.01}.items():
            futures[name] = loop.create_future()
            futures[name].add_done_callback(lambda _, name=name: ended.append(name))
            deadlines.add(futures[name], seconds)
        await asyncio.wait_for(futures["late"], FAR)

    asyncio.run(main())
    assert ended == ["first", "middle", "late"]


def test_calls_that_have_ended_are_forgotten_though_their_deadlines_are_far() -> None:
    async def main() -> None:
        loop, deadlines = asyncio.get_running_loop(), Deadlines()
        futures = [loop.create_future() for _ in range(1000)]
        known = [weakref.ref(future) for future in futures]
        for future in futures:
            deadlines.add(future, FAR)
        while futures:
            end(futures.pop())
        del future
        latest = loop.create_future()
        deadlines.add(latest, FAR)
        gc.collect()
        assert not any(each() for each in known)
        end(latest)
        end(latest)  # of a call that ends as its time is over
        assert latest.done()

    asyncio.run(main())
