"""MCP servers behind an address, which others start, stop and freeze."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack

import pytest
from real_servers import answered, call, free_port, listening, needs_servers, opened, remote, trajectory, write

from rlfactory_core.types import FaultKind

pytestmark = [needs_servers, pytest.mark.usefixtures("nothing_left")]
either = pytest.mark.parametrize("transport", ["sse", "streamable-http"])


@either
def test_the_transport_need_not_be_named(transport: str) -> None:
    port = free_port()

    async def work() -> None:
        async with opened({"everything": {"url": remote(transport, port)["url"]}}) as manager:
            assert (await call(manager, "echo", message="found")).content == "Echo: found"

    with listening(transport, port):
        asyncio.run(work())


@either
def test_an_answer_that_is_very_long_harms_no_other_call(transport: str) -> None:
    port = free_port()

    async def work() -> None:
        async with opened({"everything": remote(transport, port)}, retries=0) as manager:
            calls = [
                write("trigger-long-running-operation", duration=1, steps=1),
                write("echo", message="x" * 2_000_000),
            ]
            slow, long = await manager.invoke(calls, trajectory())
            assert slow.fault is None
            assert long.truncated or (long.fault, "too long" in long.content) == (FaultKind.TOOL, True)

    with listening(transport, port):
        asyncio.run(work())


@either
@pytest.mark.parametrize("idle", [False, True])
def test_a_server_that_is_started_again_is_found_again(transport: str, idle: bool) -> None:
    port = free_port()

    async def work() -> None:
        first = ExitStack()
        first.enter_context(listening(transport, port))
        async with opened({"everything": remote(transport, port)}, retries=0, deadline_s=5.0) as manager:
            if idle:
                first.close()
            else:
                long = write("trigger-long-running-operation", duration=60, steps=1)
                flying = asyncio.ensure_future(manager.invoke([long, write("echo", message="it runs")], trajectory()))
                await call(manager, "echo", message="so does the other")
                first.close()
                cut, _ = await flying
                assert cut.fault is FaultKind.INFRA  # with mcp 1 at its deadline, if nothing of the answer had come
            with listening(transport, port):
                missed = await call(manager, "echo", message="hello again")
                assert missed.fault in (None, FaultKind.INFRA)  # that its session is gone is not the tool's fault
                assert (await answered(manager, "echo", message="hello again")).content == "Echo: hello again"

    asyncio.run(work())


@either
def test_a_frozen_server_is_found_again_when_it_thaws(transport: str) -> None:
    port = free_port()

    async def work(pid: int) -> None:
        server = {**remote(transport, port), "ping_timeout": 0.5}
        limits = {"retries": 0, "deadline_s": 1.0, "breaker_failures": 1000}
        async with opened({"everything": server}, **limits) as manager:
            os.kill(pid, signal.SIGSTOP)
            calls = [write("echo", message=str(n)) for n in range(10)]
            frozen = [*await manager.invoke(calls, trajectory()), *await manager.invoke(calls, trajectory())]
            assert {result.fault for result in frozen} == {FaultKind.INFRA}
            assert max(result.latency_s for result in frozen) < 30.0
            os.kill(pid, signal.SIGCONT)
            assert (await answered(manager, "echo", message="warm")).content == "Echo: warm"

    with listening(transport, port) as pid:
        asyncio.run(work(pid))


@either
def test_closing_does_not_wait_for_a_frozen_server(transport: str) -> None:
    port = free_port()

    async def work(pid: int) -> float:
        async with opened({"everything": remote(transport, port)}):
            os.kill(pid, signal.SIGSTOP)
            began = asyncio.get_running_loop().time()
        return asyncio.get_running_loop().time() - began

    with listening(transport, port) as pid:
        assert asyncio.run(work(pid)) < 60.0
