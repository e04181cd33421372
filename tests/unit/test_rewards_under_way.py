"""The reward layer while attempts are under way: each is scored when it ends, a group is compared when all have."""

from __future__ import annotations

import asyncio

import pytest
from reward_examples import Ranks, attempts

from rlfactory_core.rewards import ExactMatch, RewardLayer
from rlfactory_core.rewards.layer import GroupScoring
from rlfactory_core.types import Group, Score, Trajectory


class Slow:
    """Scores when it is let; notes when it began."""

    def __init__(self) -> None:
        self.began: asyncio.Queue[int] = asyncio.Queue()
        self.go = asyncio.Event()

    async def score(self, trajectory: Trajectory) -> Score:
        self.began.put_nowait(trajectory.attempt)
        await self.go.wait()
        return Score(1.0, counts={"requests": 1.0})


def test_an_attempt_is_scored_while_the_others_are_under_way() -> None:
    async def play() -> None:
        slow, members = Slow(), attempts(3)
        scoring = GroupScoring(RewardLayer({"slow": (slow, 1.0), "em": (ExactMatch(), 1.0)}), members[0].sample, 3)
        first = asyncio.create_task(scoring.score(2, members[2]))
        assert await slow.began.get() == 2
        slow.go.set()
        assert (await first).reward == 2.0  # the others have not ended

    asyncio.run(play())


def test_a_group_is_compared_when_all_have_ended_beside_what_still_scores_them() -> None:
    class Compares(Ranks):
        def __init__(self, compared: asyncio.Queue[list[tuple[int, Score | None]]]) -> None:
            self.compared = compared

        async def score_group(self, group: Group) -> list[Score]:
            self.compared.put_nowait([(each.attempt, each.score) for each in group.trajectories])
            return await super().score_group(group)

    async def play() -> None:
        slow, members = Slow(), attempts(3)
        compared: asyncio.Queue[list[tuple[int, Score | None]]] = asyncio.Queue()
        layer = RewardLayer({"rank": (Compares(compared), 1.0), "slow": (slow, 1.0), "em": (ExactMatch(), 1.0)})
        scoring = GroupScoring(layer, members[0].sample, 3)
        tasks = [asyncio.create_task(scoring.score(i, members[i])) for i in (2, 0)]
        assert [await slow.began.get(), await slow.began.get()] == [2, 0]
        assert compared.empty()
        tasks.append(asyncio.create_task(scoring.score(1, members[1])))
        assert await compared.get() == [(0, None), (1, None), (2, None)]  # in order, not waiting for the slow ones
        slow.go.set()
        found = await asyncio.gather(*tasks)
        assert [(each.attempt, each.reward) for each in found] == [(2, 4.0), (0, 2.0), (1, 3.0)]
        assert [list(each.score.components) for each in found if each.score] == [["em", "slow", "rank"]] * 3

    asyncio.run(play())


def test_seconds_are_those_in_which_something_was_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    class Waits:
        def __init__(self, gate: asyncio.Event) -> None:
            self.gate = gate

        async def score(self, _: Trajectory) -> Score:
            await self.gate.wait()
            return Score(1.0)

    class Thinks(Ranks):
        def __init__(self, gate: asyncio.Event) -> None:
            self.gate = gate

        async def score_group(self, group: Group) -> list[Score]:
            await self.gate.wait()
            return await super().score_group(group)

    async def at(seconds: float, opens: asyncio.Event | None = None) -> None:
        clock[0] = seconds
        if opens:
            opens.set()
        for _ in range(100):  # passes of the event loop, in which everything goes as far as it can
            await asyncio.sleep(0)

    async def play() -> list[Trajectory]:
        members, alone, together = attempts(2), asyncio.Event(), asyncio.Event()
        layer = RewardLayer({"a": (Waits(alone), 1.0), "b": (Waits(alone), 1.0), "rank": (Thinks(together), 1.0)})
        scoring = GroupScoring(layer, members[0].sample, 2)
        first = asyncio.create_task(scoring.score(0, members[0]))
        await at(0.0)
        await at(1.0, alone)
        alone.clear()
        await at(100.0)
        second = asyncio.create_task(scoring.score(1, members[1]))
        await at(100.0)
        await at(101.0, alone)
        await at(102.0, together)
        return [await first, await second]

    first, second = (each.score for each in asyncio.run(play()))
    assert first is not None
    assert second is not None
    assert first.latency_s == second.latency_s == {"a": 1.0, "b": 1.0, "rank": 2.0}
    assert second.seconds == 2.0  # at once: not the sum
    assert first.seconds == 3.0  # the wait for the other attempt is no scoring
