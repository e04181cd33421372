"""The same call at the same moment: it runs once, and what befalls one caller befalls no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tool_calls import CONTEXT, manage, write

from rlfactory_core.errors import ToolError, ToolUnavailableError
from rlfactory_core.tools import DefaultToolManager, FunctionTool
from rlfactory_core.types import FaultKind, ToolResult


class Gated:
    """A function that waits for its gate, then does what it is told for the n-th call; it sees its cancellations."""

    def __init__(self, *outcomes: Exception | str) -> None:
        self.outcomes = outcomes
        self.gate = asyncio.Event()
        self.begun, self.cancelled = 0, 0

    def tool(self, name: str = "find") -> FunctionTool[..., Any]:
        async def find(query: str = "") -> str:
            self.begun += 1
            outcome = self.outcomes[min(self.begun, len(self.outcomes)) - 1]
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return FunctionTool(find, name, version="1")


def ask(manager: DefaultToolManager, count: int = 1) -> list[asyncio.Task[tuple[ToolResult, ...]]]:
    """The same call by so many trajectories."""
    return [asyncio.ensure_future(manager.invoke([write("find", {"query": "x"})], CONTEXT)) for _ in range(count)]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 what is waited for sets no event
        await asyncio.sleep(0)


def outcomes(answers: list[tuple[ToolResult, ...]]) -> list[tuple[str, FaultKind | None, bool, int]]:
    return [(result.content, result.fault, result.cached, result.attempts) for (result,) in answers]


FIRST, LATER = ("yes", None, False, 1), ("yes", None, True, 0)
DOWN = ("Error: find is not available now.", FaultKind.INFRA, False, 1)


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_a_groups_first_query_runs_once(place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))
    find = Gated("yes")

    async def work(manager: DefaultToolManager) -> None:
        asking = ask(manager, 8)
        await until(lambda: find.begun == 1)
        find.gate.set()
        assert outcomes(await asyncio.gather(*asking)) == [FIRST] + [LATER] * 7
        assert outcomes(await asyncio.gather(*ask(manager))) == [LATER]

    manage(work, find.tool(), cache=place, concurrency=1)
    assert find.begun == 1


def test_the_same_call_twice_in_a_turn_runs_once() -> None:
    find = Gated("yes")
    find.gate.set()

    async def work(manager: DefaultToolManager) -> None:
        turn = [write("find", {"query": query}, call_id=str(i)) for i, query in enumerate("xyx")]
        results = await manager.invoke(turn, CONTEXT)
        assert [(result.call_id, result.cached) for result in results] == [("0", False), ("1", False), ("2", True)]

    manage(work, find.tool(), cache="memory")
    assert find.begun == 2


def test_without_a_cache_each_call_runs() -> None:
    find = Gated("yes")
    find.gate.set()

    async def work(manager: DefaultToolManager) -> None:
        assert outcomes(await asyncio.gather(*ask(manager, 3))) == [FIRST] * 3

    manage(work, find.tool())


def test_the_firsts_cancellation_cancels_its_call_and_the_next_takes_over() -> None:
    find = Gated("yes")

    async def work(manager: DefaultToolManager) -> None:
        first, *others = ask(manager, 4)
        await until(lambda: find.begun == 1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert find.cancelled == 1
        await until(lambda: find.begun == 2)
        find.gate.set()
        assert outcomes(await asyncio.gather(*others)) == [FIRST, LATER, LATER]

    manage(work, find.tool(), cache="memory", concurrency=1)
    assert find.begun == 2


def test_waiting_for_a_slot_costs_the_one_who_takes_over_no_time() -> None:
    find, holder = Gated("yes"), Gated("held")
    find.gate.set()

    async def work(manager: DefaultToolManager) -> None:
        holding = asyncio.ensure_future(manager.invoke([write("hold", {})], CONTEXT))
        await until(lambda: holder.begun == 1)
        first, second = ask(manager, 2)
        await asyncio.sleep(0.1)  # twice the deadline
        first.cancel()
        await asyncio.sleep(0)
        holder.gate.set()
        await holding
        assert outcomes([await second]) == [FIRST]

    overrides = {"find": {"deadline_s": 0.05}}
    manage(work, find.tool(), holder.tool("hold"), cache="memory", total_concurrency=1, overrides=overrides)


def test_a_waiters_cancellation_is_its_own() -> None:
    find = Gated("yes")

    async def work(manager: DefaultToolManager) -> None:
        first, second, third = ask(manager, 3)
        await until(lambda: find.begun == 1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        find.gate.set()
        assert outcomes(await asyncio.gather(first, third)) == [FIRST, LATER]

    manage(work, find.tool(), cache="memory")
    assert (find.begun, find.cancelled) == (1, 0)


def test_when_all_are_cancelled_nothing_goes_on() -> None:
    find = Gated("yes")

    async def work(manager: DefaultToolManager) -> None:
        asking = ask(manager, 3)
        await until(lambda: find.begun == 1)
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    manage(work, find.tool(), cache="memory")  # which sees that no task is left
    assert (find.begun, find.cancelled) == (1, 1)


def test_an_infra_fault_is_the_firsts_alone() -> None:
    find = Gated(ToolUnavailableError("down"), "yes")
    find.gate.set()

    async def work(manager: DefaultToolManager) -> None:
        assert outcomes(await asyncio.gather(*ask(manager, 4))) == [DOWN, FIRST, LATER, LATER]

    manage(work, find.tool(), cache="memory")
    assert find.begun == 2


def test_the_tools_no_is_everybodys_and_is_not_kept() -> None:
    find = Gated(ToolError("nothing found"), "yes")
    find.gate.set()

    async def work(manager: DefaultToolManager) -> None:
        refused = ("Error: nothing found", FaultKind.TOOL)
        assert outcomes(await asyncio.gather(*ask(manager, 2))) == [(*refused, False, 1), (*refused, True, 0)]
        assert outcomes(await asyncio.gather(*ask(manager))) == [FIRST]

    manage(work, find.tool(), cache="memory")


def test_a_waiters_deadline_holds_and_who_came_late_has_time_to_try() -> None:
    find = Gated("never", "yes")
    seconds = 0.6

    async def work(manager: DefaultToolManager) -> None:
        early = ask(manager, 2)
        await until(lambda: find.begun == 1)
        await asyncio.sleep(seconds / 2)
        late = ask(manager)
        await until(lambda: find.begun == 2)
        find.gate.set()
        answers = await asyncio.gather(*early, *late)
        late_words = "Error: find did not answer in time."
        assert outcomes(answers) == [
            (late_words, FaultKind.INFRA, False, 1),
            (late_words, FaultKind.INFRA, True, 0),
            FIRST,
        ]
        assert all(result.latency_s >= seconds * 0.99 for (result,) in answers[:2])

    manage(work, find.tool(), cache="memory", deadline_s=seconds)
