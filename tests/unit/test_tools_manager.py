"""The tool-call contract, as the model and the metrics see it."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import BrokenExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlfactory_core.config import ToolsConfig
from rlfactory_core.errors import ConfigError, ToolArgumentsError, ToolError, ToolUnavailableError, UsageError
from rlfactory_core.protocols import Tool, ToolContext
from rlfactory_core.testing import FaultInjector
from rlfactory_core.tools import DefaultToolManager, FunctionTool, tool
from rlfactory_core.tools.limits import CircuitBreaker
from rlfactory_core.types import FaultKind, Sample, ToolCall, ToolResult, ToolSpec

CONTEXT = ToolContext("t", Sample("s", "?"))


@tool
async def echo(text: str, times: int = 1) -> str:
    """Say it again.

    Args:
        text: what to say.
    """
    return text * times


def write(name: str, arguments: Mapping[str, Any] | None, call_id: str = "0", error: str | None = None) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments), arguments, error)


def manage(
    work: Callable[[DefaultToolManager], Coroutine[Any, Any, Any]],
    *tools: Tool,
    count_tokens: Any = None,
    **config: Any,
) -> Any:
    """Run ``work`` with a manager, and see that no task outlives it."""

    async def run() -> Any:
        manager = DefaultToolManager(tools, ToolsConfig(**config), count_tokens=count_tokens)
        try:
            return await work(manager)
        finally:
            await manager.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(run())


def invoke(call: ToolCall, *tools: Tool, **config: Any) -> ToolResult:
    async def work(manager: DefaultToolManager) -> ToolResult:
        (result,) = await manager.invoke([call], CONTEXT)
        return result

    result: ToolResult = manage(work, *tools, **config)
    return result


def raising(error: BaseException, *, blocking: bool = False) -> FunctionTool[..., Any]:
    async def breaks() -> str:
        raise error

    def breaks_in_a_thread() -> str:
        raise error

    return FunctionTool(breaks_in_a_thread if blocking else breaks, "breaks")


class Flaky:
    """Fails with an infra fault as often as told, then answers."""

    spec = ToolSpec("flaky", "", {"type": "object"})
    stateful = False

    def __init__(self, failures: int, idempotent: bool = True) -> None:
        self.failures = failures
        self.idempotent = idempotent
        self.calls = 0

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise ToolUnavailableError("down")
        return f"answer {self.calls}"

    async def close(self) -> None: ...


def test_a_good_call() -> None:
    result = invoke(write("echo", {"text": "hé", "times": 2}, call_id="c7"), echo)
    assert (result.call_id, result.name, result.content, result.fault) == ("c7", "echo", "héhé", None)
    assert (result.attempts, result.cached, result.truncated, result.size_bytes) == (1, False, False, 6)
    assert result.latency_s > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (write("echo", {}), "wrong arguments for echo: argument 'text' (string: what to say.) is missing"),
        (
            write("echo", {"text": "x", "tmes": 2}),
            "wrong arguments for echo: unknown argument \"tmes\". Did you mean 'times'?",
        ),
        (
            write("echo", {"text": "x", "times": "two"}),
            "wrong arguments for echo: 'times' must be of type integer, not \"two\"",
        ),
        (write("ecoh", {"text": "x"}), "there is no tool \"ecoh\". Did you mean 'echo'?"),
        (write("echo", None, error="The call is not JSON."), "The call is not JSON."),
        (write("echo", None), "the call has no arguments"),
    ],
)
def test_what_the_model_wrote_wrongly(call: ToolCall, message: str) -> None:
    result = invoke(call, echo)
    assert (result.content, result.fault, result.attempts) == (f"Error: {message}", FaultKind.POLICY, 0)


def test_nested_and_listed_values_are_named_by_their_place() -> None:
    @tool
    async def plan(stops: list[dict[str, int]]) -> str:
        return "ok"

    result = invoke(write("plan", {"stops": [{"a": 1}, {"a": "x" * 500}]}), plan)
    assert result.content.startswith("Error: wrong arguments for plan: 'stops[1].a' must be of type integer, not \"xxx")
    assert len(result.content) < 200


@pytest.mark.parametrize(
    ("error", "kind", "content"),
    [
        (ToolError("no table named users"), FaultKind.TOOL, "Error: no table named users"),
        (ToolArgumentsError("the query is empty"), FaultKind.POLICY, "Error: the query is empty"),
        (ValueError("/home/me/secret.txt"), FaultKind.TOOL, "Error: breaks failed (ValueError)."),
        (FileNotFoundError(2, "gone", "/home/me"), FaultKind.TOOL, "Error: breaks failed (FileNotFoundError)."),
        (SystemExit("/home/me"), FaultKind.TOOL, None),
        (StopIteration("/home/me"), FaultKind.TOOL, None),
        (ToolUnavailableError("http://me:pw@host"), FaultKind.INFRA, "Error: breaks is not available now."),
        (ConnectionResetError("host"), FaultKind.INFRA, "Error: breaks is not available now."),
        (TimeoutError("host"), FaultKind.INFRA, "Error: breaks is not available now."),
        (asyncio.TimeoutError(), FaultKind.INFRA, "Error: breaks is not available now."),
        (OSError(113, "No route to host"), FaultKind.INFRA, "Error: breaks is not available now."),
        (BrokenExecutor("worker died"), FaultKind.INFRA, "Error: breaks is not available now."),
        (asyncio.CancelledError(), FaultKind.INFRA, "Error: breaks is not available now."),
    ],
)
@pytest.mark.parametrize("blocking", [False, True])
def test_whose_fault_it_is(
    error: BaseException, kind: FaultKind, content: str | None, blocking: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if blocking and isinstance(error, asyncio.CancelledError):
        kind, content = FaultKind.TOOL, None  # in a thread it is an exception like others
    caplog.set_level(logging.DEBUG)
    result = invoke(write("breaks", {}), raising(error, blocking=blocking))
    assert result.fault is kind
    assert content is None or result.content == content
    assert "/home/me" not in result.content
    assert "Traceback" not in result.content
    assert any(record.name.startswith("rlfactory_core.tools") for record in caplog.records)


def test_a_lost_connection_is_infra_also_within_a_clients_own_error() -> None:
    class ClientError(Exception): ...

    @tool
    async def fetch() -> str:
        try:
            raise ConnectionRefusedError("refused")
        except ConnectionRefusedError as error:
            raise ClientError("request failed") from error

    assert invoke(write("fetch", {}), fetch).fault is FaultKind.INFRA


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


def test_the_deadline_cancels() -> None:
    ended: list[str] = []

    @tool
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    result = invoke(write("hang", {}), hang, deadline_s=0.02)
    assert ended == ["cancelled"]
    assert (result.content, result.fault, result.attempts) == (
        "Error: hang did not answer in time.",
        FaultKind.INFRA,
        1,
    )
    assert 0.02 <= result.latency_s < 1.0


def test_the_deadline_is_over_all_attempts() -> None:
    flaky = Flaky(failures=10**9)
    result = invoke(write("flaky", {}), flaky, deadline_s=0.15, retries=10**6, breaker_failures=10**9)
    assert result.fault is FaultKind.INFRA
    assert result.latency_s < 1.0
    assert result.attempts == flaky.calls > 1


def test_blocking_calls_that_hang_cost_the_others_no_place() -> None:
    release = threading.Event()

    @tool
    def sometimes(hang: bool) -> str:
        if hang:
            release.wait(30)
        return "ok"

    async def work(manager: DefaultToolManager) -> tuple[ToolResult, ...]:
        try:
            await manager.invoke([write("sometimes", {"hang": True})] * 2, CONTEXT)
            return await manager.invoke([write("sometimes", {"hang": False})] * 4, CONTEXT)
        finally:
            release.set()

    results = manage(work, sometimes, concurrency=2, deadline_s=0.1)
    assert [result.content for result in results] == ["ok"] * 4


def test_only_idempotent_tools_are_retried() -> None:
    steady, once = Flaky(2), Flaky(2, idempotent=False)
    result = invoke(write("flaky", {}), steady)
    assert (result.content, result.attempts, result.fault) == ("answer 3", 3, None)
    result = invoke(write("flaky", {}), once)
    assert (result.attempts, result.fault, once.calls) == (1, FaultKind.INFRA, 1)


def test_a_tools_no_is_not_retried() -> None:
    made = FunctionTool(raising(ToolError("no"))._fn, "breaks", idempotent=True)
    assert invoke(write("breaks", {}), made).attempts == 1


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
        await asyncio.sleep(0.03)
        return "ok"

    async def work(manager: DefaultToolManager) -> tuple[ToolResult, ...]:
        return await manager.invoke([write("nap", {})] * 8, CONTEXT)

    results = manage(work, nap, concurrency=1, deadline_s=0.2)
    assert {result.content for result in results} == {"ok"}
    assert max(result.latency_s for result in results) > 0.2  # the wait counts in the latency


def test_an_open_breaker_spares_the_tool() -> None:
    flaky = Flaky(failures=3, idempotent=False)

    async def work(manager: DefaultToolManager) -> list[ToolResult]:
        return [(await manager.invoke([write("flaky", {})], CONTEXT))[0] for _ in range(5)]

    results = manage(work, flaky, breaker_failures=3, breaker_reset_s=1000)
    assert [result.attempts for result in results] == [1, 1, 1, 0, 0]
    assert {result.fault for result in results} == {FaultKind.INFRA}


def test_the_breaker_probes_one_call_at_a_time_until_one_succeeds() -> None:
    breaker = CircuitBreaker(failures=2, reset_s=10.0)
    for now in (0.0, 1.0):
        assert breaker.admit(now)
        breaker.record(True, now)
    assert breaker.is_open(10.9)
    assert not breaker.admit(10.9)
    assert [breaker.admit(11.0), breaker.admit(11.0)] == [True, False]
    breaker.record(True, 12.0)
    assert not breaker.admit(21.9)
    assert breaker.admit(22.0)
    breaker.record(False, 22.5)
    assert breaker.admit(22.5)
    assert breaker.admit(22.5)


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


def test_injected_weather_is_masked_or_survived() -> None:
    async def work(manager: DefaultToolManager) -> list[FaultKind | None]:
        results = await manager.invoke([write("echo", {"text": "x"})] * 60, CONTEXT)
        return [result.fault for result in results]

    def weather() -> FaultInjector:
        return FaultInjector(echo, 1, latency=lambda draw: draw.uniform(0, 0.01), error_rate=0.2, hang_rate=0.2)

    faults = manage(work, weather(), deadline_s=0.3, breaker_failures=1000)
    assert set(faults) == {None, FaultKind.INFRA}
    assert manage(work, weather(), deadline_s=0.3, breaker_failures=1000) == faults


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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["text", "times", "$ref", "\ud800"]) | st.text(max_size=8), JSON, max_size=4
)
HOSTILE = st.builds(
    ToolCall,
    id=st.text(max_size=5),
    name=st.sampled_from(["echo", "strict", "ech\x00o", "", "x" * 100_000]) | st.text(st.characters()),
    arguments_text=st.text(),
    arguments=st.none() | ARGUMENTS,
    error=st.none() | st.text(st.characters(), min_size=1),
)


@tool
async def strict(numbers: dict[str, list[int | None]], text: Any = None) -> Any:
    return numbers


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(HOSTILE, min_size=1, max_size=5))
def test_no_call_makes_it_raise(calls: list[ToolCall]) -> None:
    async def work(manager: DefaultToolManager) -> tuple[ToolResult, ...]:
        return await manager.invoke(calls, CONTEXT)

    results = manage(work, echo, strict, max_result_tokens=100, cache=True)
    assert [result.call_id for result in results] == [call.id for call in calls]
    for result in results:
        assert result.fault in (None, FaultKind.POLICY, FaultKind.TOOL)
        assert len(result.content.encode()) < 600


def test_arguments_beyond_all_bounds() -> None:
    nested: Any = "deep"
    for _ in range(50_000):
        nested = [nested]
    cases: list[Mapping[str, Any]] = [
        {"numbers": {}, "text": nested},
        {"numbers": {"a": [10**5000]}},
        {"numbers": {"a": [float("inf")]}},
    ]
    for arguments in cases:
        result = invoke(ToolCall("0", "strict", "", arguments), strict, cache=True)
        assert result.fault is FaultKind.POLICY
        assert len(result.content) < 300
