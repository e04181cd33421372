"""One call's attempts: whose fault a failure is, deadlines, retries and the breaker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import BrokenExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from rlfactory_devkit import FaultInjector, InjectedFaults
from tool_calls import CONTEXT, Flaky, echo, invoke, manage, raising, write

from rlfactory_core.errors import ToolArgumentsError, ToolError, ToolFailedError, ToolUnavailableError
from rlfactory_core.tools import DefaultToolManager, FunctionTool, tool
from rlfactory_core.tools import attempt as attempt_module
from rlfactory_core.tools import manager as manager_module
from rlfactory_core.tools.limits import CircuitBreaker
from rlfactory_core.tools.settings import ToolsConfig
from rlfactory_core.tools.watchdog import Watchdog
from rlfactory_core.types import FaultKind, ToolResult


class UnspeakableError(ToolError):
    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("error", "kind", "content"),
    [
        (ToolError("no table named users"), FaultKind.TOOL, "Error: no table named users"),
        (ToolArgumentsError("the query is empty"), FaultKind.POLICY, "Error: the query is empty"),
        (ValueError("/home/me/secret.txt"), FaultKind.TOOL, "Error: breaks failed (ValueError)."),
        (FileNotFoundError(2, "gone", "/home/me"), FaultKind.TOOL, "Error: breaks failed (FileNotFoundError)."),
        (UnspeakableError("x"), FaultKind.TOOL, "Error: "),
        (SystemExit("/home/me"), FaultKind.TOOL, None),
        (StopIteration("/home/me"), FaultKind.TOOL, None),
        (ToolUnavailableError("http://me:pw@host"), FaultKind.INFRA, "Error: breaks is not available now."),
        (ConnectionResetError("host"), FaultKind.INFRA, "Error: breaks is not available now."),
        (TimeoutError("host"), FaultKind.INFRA, "Error: breaks is not available now."),
        (TimeoutError(), FaultKind.INFRA, "Error: breaks is not available now."),
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


@pytest.mark.parametrize("name", ["httpx.HTTPStatusError", "requests.exceptions.HTTPError"])
@pytest.mark.parametrize(("status", "kind"), [(503, FaultKind.INFRA), (429, FaultKind.INFRA), (404, FaultKind.TOOL)])
def test_a_server_that_fails_or_is_overloaded_is_infra(name: str, status: int, kind: FaultKind) -> None:
    module, _, name = name.rpartition(".")
    error = clients_error(module, name, OSError)(f"{status}")
    error.response = SimpleNamespace(status_code=status)  # type: ignore[attr-defined]
    assert invoke(write("breaks", {}), raising(error)).fault is kind


def test_the_user_learns_the_reason_in_one_line_and_the_model_does_not(caplog: pytest.LogCaptureFixture) -> None:
    error = ConnectionResetError("from http://me:pw@host:80/q\nsecond line")
    result = invoke(write("breaks", {}), raising(error))
    assert result.content == "Error: breaks is not available now."
    assert re.fullmatch(
        r"ConnectionResetError: from http://host:80/q … second line \(tool_calls\.py:\d+\)", result.reason
    )
    assert caplog.text.count("\n") == 1
    failed = invoke(write("breaks", {}), raising(ToolFailedError("its index is damaged")))
    assert (failed.content, failed.reason, failed.fault) == (
        "Error: breaks failed.",
        "its index is damaged",
        FaultKind.TOOL,
    )


def clients_error(module: str, name: str, error: type[Exception] = Exception) -> type[Exception]:
    """An error as an HTTP client has it, under a base class of that name."""
    base = type(name.rpartition(".")[2], (error,), {"__module__": module, "__qualname__": name})
    return type("Concrete", (base,), {})


class SeveralError(Exception):
    """What Python 3.11 calls an ExceptionGroup."""

    def __init__(self, *exceptions: Exception) -> None:
        super().__init__("several")
        self.exceptions = exceptions


def without_cause() -> Exception:
    try:
        try:
            raise ConnectionError("refused")
        except ConnectionError:
            raise ValueError("nobody needs to know why") from None
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (clients_error("httpx", "TransportError")("server disconnected"), FaultKind.INFRA),
        (clients_error("aiohttp.client_exceptions", "ClientConnectionError")("gone"), FaultKind.INFRA),
        (clients_error("elsewhere", "TransportError")("no"), FaultKind.TOOL),
        (SeveralError(ValueError("x"), SeveralError(ConnectionResetError("gone"))), FaultKind.INFRA),
        (SeveralError(ValueError("x"), KeyError("y")), FaultKind.TOOL),
        (without_cause(), FaultKind.TOOL),
    ],
)
def test_whose_fault_a_wrapped_failure_is(error: Exception, kind: FaultKind) -> None:
    assert invoke(write("breaks", {}), raising(error)).fault is kind


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
    assert 0.02 <= result.latency_s < 20


def test_the_deadline_holds_where_a_tool_ignores_its_cancellation(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rlfactory_core.utils.aio.GRACE_S", 0.01)

    async def main() -> None:
        free = asyncio.Event()

        @tool
        async def stubborn() -> None:
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    continue

        manager = DefaultToolManager([stubborn], ToolsConfig(deadline_s=0.02))
        (result,) = await asyncio.wait_for(manager.invoke([write("stubborn", {})], CONTEXT), 20)
        assert result.fault is FaultKind.INFRA
        assert "ignores its cancellation" in caplog.text
        free.set()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    asyncio.run(main())


def test_a_tools_own_deadline_stands_below_the_overrides() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    made = tool(hang, deadline_s=0.05)
    assert invoke(write("hang", {}), made, deadline_s=30).latency_s < 20
    overrides = {"hang": {"deadline_s": 0.3}}
    assert 0.3 <= invoke(write("hang", {}), made, overrides=overrides).latency_s < 20
    assert invoke(write("hang", {}), tool(hang), deadline_s=0.05).latency_s < 20


def test_the_deadline_is_over_all_attempts() -> None:
    flaky = Flaky(failures=10**9)
    result = invoke(write("flaky", {}), flaky, deadline_s=0.15, retries=10**6, breaker_failures=10**9)
    assert result.fault is FaultKind.INFRA
    assert result.latency_s < 20
    assert result.attempts == flaky.calls > 1


def test_blocking_calls_that_hang_cost_the_others_no_place() -> None:
    release = threading.Event()

    @tool
    def sometimes(hang: bool) -> str:
        if hang:
            release.wait(60)
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


def test_an_open_breaker_spares_the_tool() -> None:
    flaky = Flaky(failures=3, idempotent=False)

    async def work(manager: DefaultToolManager) -> list[ToolResult]:
        return [(await manager.invoke([write("flaky", {})], CONTEXT))[0] for _ in range(5)]

    results = manage(work, flaky, breaker_failures=3, breaker_reset_s=1000)
    assert [result.attempts for result in results] == [1, 1, 1, 0, 0]
    assert {result.fault for result in results} == {FaultKind.INFRA}


@pytest.mark.parametrize("back", [True, False])
def test_calls_during_a_probe_share_its_outcome(back: bool) -> None:
    flaky = Flaky(failures=3 if back else 4, idempotent=False)

    async def work(manager: DefaultToolManager) -> list[ToolResult]:
        for _ in range(3):
            await manager.invoke([write("flaky", {})], CONTEXT)
        manager._tools["flaky"].breaker._refuse_until = 0.0  # the pause is over
        return [*await manager.invoke([write("flaky", {})] * 5, CONTEXT)]

    results = manage(work, flaky, breaker_failures=3, breaker_reset_s=1000, concurrency=2)
    assert [result.fault for result in results] == [None if back else FaultKind.INFRA] * 5
    assert sum(result.attempts for result in results) == (5 if back else 1)


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


def test_injected_weather_is_masked_or_survived() -> None:
    async def work(manager: DefaultToolManager) -> list[FaultKind | None]:
        results = await manager.invoke([write("echo", {"text": "x"})] * 60, CONTEXT)
        return [result.fault for result in results]

    def weather() -> FaultInjector:
        faults = InjectedFaults(lambda draw: draw.uniform(0, 0.01), error_rate=0.2, hang_rate=0.2)
        return FaultInjector(echo, 1, faults)

    faults = manage(work, weather(), deadline_s=0.3, breaker_failures=1000)
    assert set(faults) == {None, FaultKind.INFRA}
    assert manage(work, weather(), deadline_s=0.3, breaker_failures=1000) == faults


def test_an_async_tool_that_blocks_the_event_loop_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noticed = threading.Event()
    said: list[str] = []

    class Notice(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())
            noticed.set()

    @tool
    async def fetch() -> str:
        """Fetch."""
        return "named" if noticed.wait(60) else "not named"

    monkeypatch.setattr(manager_module, "Watchdog", partial(Watchdog, seconds=0.05))
    handler = Notice()
    logging.getLogger(manager_module.__name__).addHandler(handler)
    try:
        assert invoke(write("fetch", {}), fetch).content == "named"
    finally:
        logging.getLogger(manager_module.__name__).removeHandler(handler)
    assert re.search(
        r"tool fetch blocks the event loop for more than 0.05 s \(threading\.py:\d+\).*def instead of async",
        "".join(said),
    )


def test_a_tool_that_waits_as_it_should_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    found: list[str] = []

    @tool
    async def fetch() -> str:
        """Fetch."""
        await asyncio.sleep(0.5)
        return "fetched"

    async def work(manager: DefaultToolManager) -> None:
        watchdog = Watchdog(found.append, 0.1)
        await manager.invoke([write("fetch", {})], CONTEXT)
        watchdog.close()

    manage(work, fetch)
    assert found == []


def ends(work: Callable[[], Coroutine[Any, Any, object]]) -> bool:
    """Whether `asyncio.run` comes to its end."""
    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    thread.join(60)
    return not thread.is_alive()


async def deaf() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def test_a_run_ends_although_a_tool_swallows_its_cancellation(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def stays() -> str:
        """Stay."""
        await deaf()
        return ""

    results: list[ToolResult] = []

    async def work() -> None:
        manager = DefaultToolManager([stays], ToolsConfig(deadline_s=0.05, retries=0))
        results.extend(await manager.invoke([write("stays", {})], CONTEXT))
        await manager.close()

    assert ends(work)
    assert results[0].fault is FaultKind.INFRA
    assert "tool stays ignores its cancellation" in caplog.text


def test_a_run_ends_although_a_tool_never_closes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Open(FunctionTool[..., Any]):
        async def close(self) -> None:
            await deaf()

    def stays_open() -> None:
        """Stay."""

    monkeypatch.setattr(attempt_module, "_CLOSE_S", 0.05)
    assert ends(DefaultToolManager([Open(stays_open), echo]).close)
    assert "tool stays_open did not close within 0.05 s" in caplog.text
