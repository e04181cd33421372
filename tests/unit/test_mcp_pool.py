"""Several replicas of a server, and a session of its own for each trajectory."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from mcp_calls import Opened, context, fake, is_alive, opened, servers, wait_until

from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.tools.mcp import stdio

pytest.importorskip("mcp", reason="MCP servers need the package mcp")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_LEAVE_S", 0.2)
    monkeypatch.setattr(stdio, "_TERMINATE_S", 0.2)


async def pids(it: Opened, calls: int) -> set[int]:
    return set(map(int, await asyncio.gather(*(it.call("pid") for _ in range(calls)))))


def test_replicas_share_the_calls_and_each_has_one_at_a_time() -> None:
    async def work(it: Opened) -> None:
        assert len(await pids(it, 30)) == 3
        began = time.monotonic()
        await asyncio.gather(*(it.call("sleep", seconds=1.0) for _ in range(6)))
        assert 2.0 <= time.monotonic() - began < 6.0  # two rounds; one server would take six

    opened(servers(it=fake("--serial", replicas=3)), work)


def test_waiting_calls_get_their_turn_in_order() -> None:
    async def work(it: Opened) -> list[str]:
        holding = [asyncio.ensure_future(it.call("sleep", seconds=0.2)) for _ in range(2)]
        await asyncio.sleep(0)
        order: list[str] = []

        async def take_turn(number: int) -> None:
            await it.call("sleep", seconds=0.01 * (number % 3))
            order.append(str(number))

        await asyncio.gather(*holding, *map(take_turn, range(12)))
        return order

    order = opened(servers(it=fake(replicas=2)), work)
    assert all(abs(int(number) - place) <= 2 for place, number in enumerate(order))


def test_a_call_that_gives_up_waiting_takes_no_replica_with_it() -> None:
    async def work(it: Opened) -> None:
        holding = [asyncio.ensure_future(it.call("sleep", seconds=0.3)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting = [asyncio.ensure_future(it.call("sleep", seconds=0)) for _ in range(4)]
        await asyncio.sleep(0)
        for task in waiting[::2]:
            task.cancel()
        await asyncio.gather(*holding, *waiting, return_exceptions=True)
        assert len(await pids(it, 8)) == 2

    opened(servers(it=fake(replicas=2)), work)


def test_a_replica_that_hangs_takes_no_calls_until_it_is_back() -> None:
    async def work(it: Opened) -> None:
        before = await pids(it, 8)
        await it.cut("freeze")
        assert len(before & await pids(it, 10)) == 1  # the other one took them all

        async def both_are_up() -> bool:
            return len(await pids(it, 8)) == 2

        await it.until(both_are_up)
        assert len(before & await pids(it, 8)) == 1

    opened(servers(it=fake(replicas=2, ping_timeout=0.3)), work)


def test_a_replica_that_dies_leaves_its_calls_to_the_others() -> None:
    async def work(it: Opened) -> None:
        before = await pids(it, 8)
        os.kill(min(before), signal.SIGKILL)
        answers = await asyncio.gather(*(it.call("pid") for _ in range(20)), return_exceptions=True)
        assert sum(isinstance(answer, ToolUnavailableError) for answer in answers) <= 1  # the one in flight

    opened(servers(it=fake(replicas=2)), work)


def test_each_trajectory_has_a_server_of_its_own() -> None:
    async def work(it: Opened) -> None:
        first, second = context("a"), context("b")
        await asyncio.gather(*(it.call("remember", c, key="who", value=c.trajectory_id) for c in (first, second)))
        assert await it.call("recall", first, key="who") == "a"
        assert await it.call("recall", second, key="who") == "b"
        pid = int(await it.call("pid", first))
        assert {int(await it.call("pid", first)) for _ in range(3)} == {pid}
        await first.end()
        assert not is_alive(pid)
        assert await it.call("recall", second, key="who") == "b"
        third = context("c")
        assert await it.call("recall", third, key="who") == "unknown"
        await second.end()
        await third.end()

    opened(servers(it=fake(session="trajectory")), work)


def test_calls_at_once_of_one_trajectory_share_its_server() -> None:
    async def work(it: Opened) -> None:
        assert len(await pids(it, 5)) == 1
        await it.context.end()

    opened(servers(it=fake(session="trajectory")), work)


def children() -> str:
    """This process's, those of other tests' tools included."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def test_before_a_trajectory_calls_no_server_runs() -> None:
    before = children()

    async def work(it: Opened) -> None:
        assert "echo" in it.tools
        assert children() == before

    opened(servers(it=fake(session="trajectory")), work)


def test_a_trajectorys_server_that_dies_is_not_replaced_as_its_state_is_gone() -> None:
    async def work(it: Opened) -> None:
        pid = int(await it.call("pid"))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid))
        for _ in range(2):
            with pytest.raises(ToolUnavailableError):
                await it.call("echo", text="x")
        assert await it.call("echo", context("other"), text="x") == "x"

    opened(servers(it=fake(session="trajectory")), work)


def test_a_trajectorys_server_that_does_not_start_is_an_infra_fault_and_tried_again(tmp_path: Path) -> None:
    broken = tmp_path / "broken"

    async def work(it: Opened) -> None:
        broken.touch()
        with pytest.raises(ToolUnavailableError, match="no licence"):
            await it.call("echo", text="x")
        broken.unlink()
        assert await it.call("echo", text="x") == "x"

    opened(servers(it=fake("--fail-after", str(broken), session="trajectory")), work)


def test_a_trajectory_that_ends_while_its_server_starts_leaves_none() -> None:
    before = children()

    async def work(it: Opened) -> None:
        calling = asyncio.ensure_future(it.call("echo", text="x"))
        await asyncio.sleep(0.01)
        calling.cancel()
        await it.context.end()
        await asyncio.wait((calling,))
        assert children() == before

    opened(servers(it=fake(session="trajectory")), work)


def test_trajectories_that_were_never_ended_are_ended_with_the_source() -> None:
    async def work(it: Opened) -> list[int]:
        return [int(await it.call("pid", context(name))) for name in "abc"]

    for pid in opened(servers(it=fake(session="trajectory")), work):
        assert not is_alive(pid)
