"""The tool-call contract, as the model and the metrics see it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tool_calls import CONTEXT, Flaky, echo, invoke, manage, raising, write

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import ConfigError, ToolError, UsageError
from rlfactory_core.tools import DefaultToolManager, tool
from rlfactory_core.tools.bounded_validator import TooMuchWorkError
from rlfactory_core.tools.limits import only_about
from rlfactory_core.tools.settings import ToolsConfig
from rlfactory_core.tools.validation import ArgumentChecker
from rlfactory_core.types import FaultKind, ToolResult, ToolSpec


def test_a_good_call() -> None:
    result = invoke(write("echo", {"text": "hé", "times": 2}, call_id="c7"), echo)
    assert (result.call_id, result.name, result.content, result.fault) == ("c7", "echo", "héhé", None)
    assert (result.attempts, result.cached, result.truncated, result.size_bytes) == (1, False, False, 6)
    assert result.latency_s > 0


def test_results_that_are_not_text_become_json() -> None:
    @tool
    async def rows() -> list[dict[str, Any]]:
        return [{"name": "Zoë", "seen": {1}, "mean": float("nan")}]

    assert invoke(write("rows", {}), rows).content == '[{"name":"Zoë","seen":[1],"mean":NaN}]'


def test_lone_surrogates_never_reach_the_model() -> None:
    @tool
    async def broken() -> str:
        return "a\ud800b"

    assert invoke(write("broken", {}), broken).content == "a?b"
    assert invoke(write("echo", {"text": "\ud800"}), echo).fault is FaultKind.POLICY


def test_a_long_result_is_cut_visibly() -> None:
    result = invoke(write("echo", {"text": "abcdefghij", "times": 100}), echo, max_result_tokens=5)
    assert result.content == "abcdefghij" * 2 + "\n[truncated: the first 20 of 1000 characters]"
    assert (result.truncated, result.size_bytes) == (True, 1000)


def test_the_limit_counts_the_models_own_tokens() -> None:
    async def work(manager: DefaultToolManager) -> tuple[ToolResult, ...]:
        calls = [write("echo", {"text": "word ", "times": times}) for times in (50, 51, 100_000)]
        return await manager.invoke(calls, CONTEXT)

    results = manage(work, echo, max_result_tokens=50, count_tokens=lambda text: len(text.split()))
    assert [result.truncated for result in results] == [False, True, True]
    for result in results:
        assert 48 <= len(result.content.split("\n")[0].split()) <= 50


def test_calls_run_at_once_and_keep_their_order() -> None:
    gates = [asyncio.Event() for _ in range(5)]

    @tool
    async def gated(i: int) -> str:
        if i + 1 < len(gates):
            await gates[i + 1].wait()  # each waits for the next: only parallel calls end, and in reverse
        gates[i].set()
        return str(i)

    async def work(manager: DefaultToolManager) -> tuple[ToolResult, ...]:
        return await manager.invoke([write("gated", {"i": i}, call_id=f"c{i}") for i in range(5)], CONTEXT)

    results = manage(work, gated, deadline_s=5)
    assert [(result.call_id, result.content) for result in results] == [(f"c{i}", str(i)) for i in range(5)]


@pytest.mark.parametrize(
    "config", [{"concurrency": 3}, {"total_concurrency": 3}, {"overrides": {"busy": {"concurrency": 3}}}]
)
def test_concurrency_limits(config: dict[str, Any]) -> None:
    running, most = 0, 0

    @tool
    async def busy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async def work(manager: DefaultToolManager) -> None:
        await manager.invoke([write("busy", {})] * 20, CONTEXT)

    manage(work, busy, **config)
    assert most == 3


def test_waiting_for_a_slot_is_not_the_tools_fault() -> None:
    @tool
    async def nap() -> str:
        await asyncio.sleep(0.15)
        return "ok"

    async def work(manager: DefaultToolManager) -> tuple[ToolResult, ...]:
        return await manager.invoke([write("nap", {})] * 8, CONTEXT)

    results = manage(work, nap, concurrency=1, deadline_s=1.0)
    assert {result.content for result in results} == {"ok"}
    assert max(result.latency_s for result in results) > 1.0  # the wait counts in the latency


def test_the_cache_knows_arguments_in_any_order() -> None:
    calls = 0

    @tool
    async def add(a: int, b: int) -> int:
        nonlocal calls
        calls += 1
        return a + b

    async def work(manager: DefaultToolManager) -> list[ToolResult]:
        orders = ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1})
        return [(await manager.invoke([write("add", order)], CONTEXT))[0] for order in orders]

    results = manage(work, add, cache=True)
    assert [(result.content, result.cached, result.attempts) for result in results] == [
        ("3", False, 1),
        ("3", True, 0),
        ("3", False, 1),
    ]
    assert calls == 2


def test_stateful_tools_and_failures_are_not_cached() -> None:
    async def twice(manager: DefaultToolManager) -> list[bool]:
        return [(await manager.invoke([write(manager.specs[0].name, {})], CONTEXT))[0].cached for _ in range(2)]

    @tool
    async def counter(context: ToolContext) -> int:
        context.state["n"] = context.state.get("n", 0) + 1
        return int(context.state["n"])

    assert manage(twice, counter, cache=True) == [False, False]
    assert manage(twice, raising(ToolError("no")), cache=True) == [False, False]


def test_cancelling_a_turn_cancels_its_calls() -> None:
    started, ended = asyncio.Event(), []

    @tool
    async def hang(i: int) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(i)

    async def work(manager: DefaultToolManager) -> None:
        turn = asyncio.ensure_future(manager.invoke([write("hang", {"i": i}) for i in range(3)], CONTEXT))
        await started.wait()
        await asyncio.sleep(0)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    manage(work, hang, concurrency=2)  # the third call waits for its slot
    assert sorted(ended) == [0, 1]


def test_a_manager_serves_one_event_loop_after_another() -> None:
    manager = DefaultToolManager([echo], ToolsConfig(concurrency=1))
    for _ in range(2):
        results = asyncio.run(manager.invoke([write("echo", {"text": "x"})] * 3, CONTEXT))
        assert [result.content for result in results] == ["x"] * 3


def test_close_closes_every_tool(caplog: pytest.LogCaptureFixture) -> None:
    closed = []

    class Closing(Flaky):
        def __init__(self, name: str) -> None:
            super().__init__(0)
            self.spec = ToolSpec(name, "", {"type": "object"})

        async def close(self) -> None:
            closed.append(self.spec.name)
            if self.spec.name == "first":
                raise OSError("stuck")

    async def nothing(manager: DefaultToolManager) -> None: ...

    manage(nothing, Closing("first"), Closing("second"))
    assert closed == ["first", "second"]
    assert "first did not close" in caplog.text


def test_definitions_that_are_refused() -> None:
    def plain() -> None: ...

    broken = Flaky(0)
    broken.spec = ToolSpec("flaky", "", {"type": "objekt"})
    cases: list[tuple[list[Any], str]] = [
        ([plain], "is not a tool; mark the function with @tool"),
        ([echo, echo], "two tools have the name 'echo'"),
        ([broken], r"tool flaky: its parameters are not a JSON schema"),
    ]
    for tools, message in cases:
        with pytest.raises(UsageError, match=message):
            DefaultToolManager(tools)


def test_overrides_that_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"tools.overrides.ecko: there is no such tool. Did you mean 'echo'?"):
        DefaultToolManager([echo], ToolsConfig(overrides={"ecko": {"deadline_s": 1}}))
    with pytest.raises(ConfigError, match="deadline_s"):
        DefaultToolManager([echo], ToolsConfig(overrides={"echo": {"deadlin_s": 1}}))


def test_checking_arguments_does_not_stop_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    checking, go_on = threading.Event(), threading.Event()

    def problem(checker: ArgumentChecker, arguments: object, *, quick: bool = False) -> str:
        if quick:
            raise TooMuchWorkError
        checking.set()
        assert go_on.wait(60)
        return "no"

    async def work(manager: DefaultToolManager) -> ToolResult:
        running = asyncio.ensure_future(manager.invoke([write("echo", {"times": "a"})], CONTEXT))
        while not checking.is_set():  # noqa: ASYNC110 - the loop goes on
            await asyncio.sleep(0)
        go_on.set()
        (result,) = await running
        return result

    monkeypatch.setattr(ArgumentChecker, "problem", problem)
    assert manage(work, echo).content == "Error: wrong arguments for echo: no"


def test_a_disabled_tool_is_not_offered_and_still_closed() -> None:
    other = Flaky(0)
    closed: list[str] = []

    async def close() -> None:
        closed.append("flaky")

    other.close = close  # type: ignore[method-assign]

    async def work() -> ToolResult:
        manager = DefaultToolManager([echo, other], ToolsConfig(disabled=("flaky",)))
        assert [spec.name for spec in manager.specs] == ["echo"]
        (result,) = await manager.invoke([write("flaky", {})], CONTEXT)
        await manager.close()
        return result

    result = asyncio.run(work())
    assert result.fault is FaultKind.POLICY
    assert 'there is no tool "flaky"' in result.content
    assert closed == ["flaky"]
    with pytest.raises(ConfigError, match=r"tools.disabled: there is no tool 'ecko'. Did you mean 'echo'?"):
        DefaultToolManager([echo], ToolsConfig(disabled=("ecko",)))


def test_what_is_said_of_tools_that_a_control_does_not_have_is_left_out() -> None:
    config = ToolsConfig(overrides={"echo": {"deadline_s": 1}, "flaky": {"retries": 0}}, disabled=("flaky",))
    restricted = only_about(config, [echo])
    assert (dict(restricted.overrides), restricted.disabled) == ({"echo": {"deadline_s": 1}}, ())
