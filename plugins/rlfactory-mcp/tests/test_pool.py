"""Several replicas of a server, and a session of its own for each trajectory."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

import pytest
from mcp_calls import OpenedServers, context, fake, opened, servers
from process_tree import children, is_running
from rlfactory_mcp import stdio
from waiting import until

from rlfactory_core.errors import ToolUnavailableError

pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_LEAVE_S", 0.2)
    monkeypatch.setattr(stdio, "_TERMINATE_S", 0.2)


async def pids(it: OpenedServers, calls: int) -> set[int]:
    return set(map(int, await asyncio.gather(*(it.call("pid") for _ in range(calls)))))


def begun(folder: Path) -> dict[str, str]:
    """The calls of ``hold`` that have begun, each with the process that has it."""
    return {path.stem: path.read_text() for path in folder.glob("*.begun")}


def test_replicas_share_the_calls_and_each_has_one_at_a_time(tmp_path: Path) -> None:
    async def work(it: OpenedServers) -> None:
        assert len(await pids(it, 30)) == 3
        calls = [asyncio.ensure_future(it.call("hold", folder=str(tmp_path), name=str(n))) for n in range(6)]

        async def count_is(number: int) -> bool:
            return len(begun(tmp_path)) == number

        await it.until(partial(count_is, 3))
        replicas = begun(tmp_path)
        assert set(replicas) == {"0", "1", "2"}
        assert len(set(replicas.values())) == 3  # all three work at once
        for free, next_one in (("0", "3"), ("3", "4"), ("1", "5")):
            before = begun(tmp_path)
            (tmp_path / free).touch()
            await it.until(partial(count_is, len(before) + 1))
            assert begun(tmp_path)[next_one] == before[free]  # the other two still have a call
        for name in ("2", "4", "5"):
            (tmp_path / name).touch()
        await asyncio.gather(*calls)

    opened(servers(it=fake(replicas=3)), work)


def test_waiting_calls_get_their_turn_in_order(tmp_path: Path) -> None:
    async def work(it: OpenedServers) -> list[int]:
        holding = [asyncio.ensure_future(it.call("hold", folder=str(tmp_path), name=name)) for name in "ab"]

        async def both_have_a_call() -> bool:
            return set(begun(tmp_path)) == {"a", "b"}

        await it.until(both_have_a_call)
        order: list[int] = []

        async def take_turn(number: int) -> None:
            await it.call("sleep", seconds=0)
            order.append(number)

        waiting = [asyncio.ensure_future(take_turn(number)) for number in range(12)]
        (tmp_path / "a").touch()  # one replica takes them all, and the other is held
        await asyncio.gather(*waiting)
        (tmp_path / "b").touch()
        await asyncio.gather(*holding)
        return order

    assert opened(servers(it=fake(replicas=2)), work) == list(range(12))


def test_a_call_that_gives_up_waiting_takes_no_replica_with_it() -> None:
    async def work(it: OpenedServers) -> None:
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
    async def work(it: OpenedServers) -> None:
        before = await pids(it, 8)
        await it.cut("freeze")
        assert len(before & await pids(it, 10)) == 1  # the other one took them all

        async def both_are_up() -> bool:
            return len(await pids(it, 8)) == 2

        await it.until(both_are_up)
        assert len(before & await pids(it, 8)) == 1

    opened(servers(it=fake(replicas=2, ping_timeout=0.3)), work)


def test_a_replica_that_dies_leaves_its_calls_to_the_others() -> None:
    async def work(it: OpenedServers) -> None:
        before = await pids(it, 8)
        os.kill(min(before), signal.SIGKILL)
        answers = await asyncio.gather(*(it.call("pid") for _ in range(20)), return_exceptions=True)
        assert sum(isinstance(answer, ToolUnavailableError) for answer in answers) <= 1  # the one in flight

    opened(servers(it=fake(replicas=2)), work)


def test_each_trajectory_has_a_server_of_its_own() -> None:
    async def work(it: OpenedServers) -> None:
        first, second = context("a"), context("b")
        await asyncio.gather(*(it.call("remember", c, key="who", value=c.trajectory_id) for c in (first, second)))
        assert await it.call("recall", first, key="who") == "a"
        assert await it.call("recall", second, key="who") == "b"
        pid = int(await it.call("pid", first))
        assert {int(await it.call("pid", first)) for _ in range(3)} == {pid}
        await first.end()
        assert not is_running(pid)
        assert await it.call("recall", second, key="who") == "b"
        third = context("c")
        assert await it.call("recall", third, key="who") == "unknown"
        await second.end()
        await third.end()

    opened(servers(it=fake(session="trajectory")), work)


def test_calls_at_once_of_one_trajectory_share_its_server() -> None:
    async def work(it: OpenedServers) -> None:
        assert len(await pids(it, 5)) == 1
        await it.context.end()

    opened(servers(it=fake(session="trajectory")), work)


def test_before_a_trajectory_calls_no_server_runs() -> None:
    before = children()

    async def work(it: OpenedServers) -> None:
        assert "echo" in it.tools
        assert children() <= before

    opened(servers(it=fake(session="trajectory")), work)


def test_a_trajectorys_server_that_dies_is_not_replaced_as_its_state_is_gone() -> None:
    async def work(it: OpenedServers) -> None:
        pid = int(await it.call("pid"))
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_running(pid), "the server to end")
        for _ in range(2):
            with pytest.raises(ToolUnavailableError):
                await it.call("echo", text="x")
        assert await it.call("echo", context("other"), text="x") == "x"

    opened(servers(it=fake(session="trajectory")), work)


def test_a_trajectorys_server_that_does_not_start_is_an_infra_fault_and_tried_again(tmp_path: Path) -> None:
    broken = tmp_path / "broken"

    async def work(it: OpenedServers) -> None:
        broken.touch()
        with pytest.raises(ToolUnavailableError, match="no licence"):
            await it.call("echo", text="x")
        broken.unlink()
        assert await it.call("echo", text="x") == "x"

    opened(servers(it=fake("--fail-after", str(broken), session="trajectory")), work)


def test_a_trajectory_that_ends_while_its_server_starts_leaves_none() -> None:
    before = children()

    async def work(it: OpenedServers) -> None:
        calling = asyncio.ensure_future(it.call("echo", text="x"))
        await asyncio.sleep(0.01)
        calling.cancel()
        await it.context.end()
        await asyncio.wait((calling,))
        assert children() <= before

    opened(servers(it=fake(session="trajectory")), work)


def test_trajectories_that_were_never_ended_are_ended_with_the_source() -> None:
    async def work(it: OpenedServers) -> list[int]:
        return [int(await it.call("pid", context(name))) for name in "abc"]

    for pid in opened(servers(it=fake(session="trajectory")), work):
        assert not is_running(pid)
