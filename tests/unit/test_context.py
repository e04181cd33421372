"""What a tool keeps for a trajectory: made once, let go of whatever ends it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from rlfactory_devkit import ScriptedSampler, ToyChatFormat

from rlfactory_core import context
from rlfactory_core.context import ToolContext
from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.protocols import EnvStart
from rlfactory_core.rollout import Episode, RolloutLimits, TokenModel, ToolEnv, rollout
from rlfactory_core.tools import DefaultToolManager, tool
from rlfactory_core.types import Sample, Trajectory
from rlfactory_core.utils import aio

SAMPLE = Sample("s", "?")


def run(work: Callable[[ToolContext], Coroutine[Any, Any, Any]]) -> Any:
    """Run ``work`` with a context that is ended afterwards, and see that nothing outlives it or fails unseen."""

    async def main() -> Any:
        unseen: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: unseen.append(what))
        context = ToolContext("t", SAMPLE)
        try:
            return await work(context)
        finally:
            await context.end()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert unseen == []

    return asyncio.run(main())


class Maker:
    """Makes numbered things when its gate opens; the first ``failures`` of them fail."""

    def __init__(self, failures: int = 0) -> None:
        self.gate = asyncio.Event()
        self.failures = failures
        self.begun = 0

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.gate.wait()
        if number <= self.failures:
            raise ConnectionError(f"no {number}")
        return number


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 what is waited for sets no event
        await asyncio.sleep(0)


def test_once_makes_one_thing_for_all_who_ask_at_once() -> None:
    async def work(context: ToolContext) -> None:
        make, other = Maker(), Maker()
        asking = [asyncio.ensure_future(context.once("session", make)) for _ in range(5)]
        await until(lambda: make.begun == 1)
        make.gate.set()
        other.gate.set()
        assert await asyncio.gather(*asking) == [1] * 5
        assert await context.once("session", make) == 1
        assert await context.once(("other", "key"), other) == 1
        assert (make.begun, other.begun) == (1, 1)

    run(work)


def test_a_deadline_that_passes_does_not_spoil_the_making() -> None:
    async def work(context: ToolContext) -> None:
        make = Maker()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(context.once("session", make), 0.01)
        make.gate.set()
        assert await context.once("session", make) == 1

    run(work)


def test_a_failure_reaches_all_who_wait_and_the_next_call_tries_again() -> None:
    async def work(context: ToolContext) -> None:
        make = Maker(failures=1)
        asking = [asyncio.ensure_future(context.once("session", make)) for _ in range(3)]
        await until(lambda: make.begun == 1)
        make.gate.set()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["no 1"] * 3
        assert await context.once("session", make) == 2

    run(work)


def test_a_failure_that_nobody_waited_for_is_tried_again_too() -> None:
    async def work(context: ToolContext) -> None:
        make = Maker(failures=1)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(context.once("session", make), 0.01)
        make.gate.set()
        for _ in range(3):
            await asyncio.sleep(0)  # the making fails now
        assert await context.once("session", make) == 2

    run(work)


def test_what_was_asked_for_last_is_let_go_of_first_and_only_once() -> None:
    gone: list[int] = []

    async def work(context: ToolContext) -> None:
        async def let_go(number: int) -> None:
            gone.append(number)

        for number in range(3):
            context.on_end(lambda number=number: let_go(number))  # type: ignore[misc]
        await context.end()

    run(work)
    assert gone == [2, 1, 0]


def test_the_end_cancels_what_is_being_made_and_lets_go_of_it() -> None:
    events: list[str] = []

    async def work(context: ToolContext) -> None:
        async def let_go() -> None:
            events.append("let go")

        async def make() -> None:
            context.on_end(let_go)
            events.append("begun")
            try:
                await asyncio.Event().wait()
            finally:
                events.append("cancelled")

        asking = asyncio.ensure_future(context.once("session", make))
        await until(lambda: events == ["begun"])
        await context.end()
        with pytest.raises(asyncio.CancelledError):
            await asking

    run(work)
    assert events == ["begun", "cancelled", "let go"]


def test_failures_and_hangs_keep_nothing_else_and_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(context, "END_S", 0.02)
    gone: list[str] = []

    async def work(context: ToolContext) -> None:
        async def fine() -> None:
            gone.append("fine")

        async def hangs() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                gone.append("cut")

        async def fails() -> None:
            raise OSError("stuck")

        def is_not_async() -> Any:
            return None

        for let_go in (fine, hangs, fails, is_not_async):
            context.on_end(let_go)
        await context.end()

    run(work)
    assert gone == ["cut", "fine"]
    records = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(records) == 3
    assert all("its resources for t" in record.getMessage() for record in records)
    assert "stuck" in caplog.text


def test_the_end_is_bounded_even_where_a_cancellation_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "END_S", 0.01)
    monkeypatch.setattr(aio, "GRACE_S", 0.01)

    async def main() -> None:
        context, free = ToolContext("t", SAMPLE), asyncio.Event()

        async def stubborn() -> None:
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    continue

        asking = asyncio.ensure_future(context.once("session", stubborn))
        context.on_end(stubborn)
        await asyncio.sleep(0)
        await asyncio.wait_for(context.end(), 5)
        free.set()
        await asking

    asyncio.run(main())


def test_a_cancelled_end_still_lets_go_of_everything() -> None:
    gone: list[str] = []

    async def main() -> None:
        context, gate = ToolContext("t", SAMPLE), asyncio.Event()

        async def slow() -> None:
            await gate.wait()
            gone.append("slow")

        async def quick() -> None:
            gone.append("quick")

        context.on_end(quick)
        context.on_end(slow)
        ending = asyncio.ensure_future(context.end())
        for _ in range(3):
            await asyncio.sleep(0)
        ending.cancel()
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert gone == ["slow", "quick"]


@tool
async def remember(what: str, context: ToolContext) -> str:
    """Keeps its session in the sample's metadata, for the test to see."""
    log: list[str] = context.sample.metadata["log"]

    async def forget() -> None:
        log.append(f"forgot {what}")

    context.on_end(forget)
    if what == "hangs":
        log.append("hangs")
        await asyncio.Event().wait()
    if what == "far":
        raise ToolUnavailableError("down")
    return "noted"


def calling(what: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'remember', 'arguments': {'what': what}})}</tool_call>"


class BreaksWhenClosed(ToolEnv):
    async def start(self) -> EnvStart:
        self._context.on_end(self._gone)
        return await super().start()

    async def _gone(self) -> None:
        self._sample.metadata["log"].append("forgot env")

    async def close(self) -> None:
        raise RuntimeError("cannot close")


def play(log: list[str], script: list[str], env: type[ToolEnv] = ToolEnv) -> Coroutine[Any, Any, Trajectory]:
    chat = ToyChatFormat()

    def make_env(sample: Sample, context: ToolContext) -> ToolEnv:
        return env(sample, DefaultToolManager([remember]), context)

    sample = Sample("s", "?", metadata={"log": log})
    limits = RolloutLimits(max_turns=4, max_tool_calls=4, max_turn_tokens=200, max_tokens=2000)
    return rollout(Episode(sample, make_env, limits, "x"), TokenModel(chat, ScriptedSampler(script, chat)))


def test_a_trajectory_lets_go_when_it_is_over() -> None:
    for script, stop in (([calling("a"), "done"], "no_tool_call"), ([calling("far")], "fault")):
        log: list[str] = []
        assert asyncio.run(play(log, script)).stop.value == stop
        assert log == [f"forgot {'far' if stop == 'fault' else 'a'}"]


def test_a_trajectory_lets_go_where_something_raises() -> None:
    log: list[str] = []
    with pytest.raises(IndexError):
        asyncio.run(play(log, [calling("a")]))  # the sampler's script is over
    assert log == ["forgot a"]
    with pytest.raises(RuntimeError, match="cannot close"):
        asyncio.run(play(log, ["done"], BreaksWhenClosed))
    assert log == ["forgot a", "forgot env"]


def test_a_trajectory_lets_go_when_it_is_cancelled() -> None:
    log: list[str] = []

    async def main() -> None:
        playing = asyncio.ensure_future(play(log, [calling("hangs")]))
        await until(lambda: log == ["hangs"])
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert log == ["hangs", "forgot hangs"]
