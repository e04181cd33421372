"""Servers that die, hang, freeze or do not start: what calls come to, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT
from mcp_calls import OpenedServers, fake, opened, servers
from process_tree import children, is_running, sockets_and_pipes
from rlfactory_mcp import stdio
from rlfactory_mcp.source import McpSource
from waiting import until

from rlfactory_core.errors import BackendError, ToolUnavailableError
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.types import FaultKind, ToolCall

pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that do not end on their own are not waited for as long as they are in a run."""
    monkeypatch.setattr(stdio, "_LEAVE_S", 0.2)
    monkeypatch.setattr(stdio, "_TERMINATE_S", 0.2)


async def pid_of(it: OpenedServers, name: str = "pid") -> int:
    return int(await it.call(name))


def start_error(**entries: Any) -> str:
    with pytest.raises(BackendError) as caught:
        opened(servers(**entries), None)  # type: ignore[arg-type]
    return str(caught.value)


def test_closing_ends_the_server() -> None:
    async def work(it: OpenedServers) -> int:
        return await pid_of(it)

    assert not is_running(opened(servers(it=fake()), work))


def test_no_pipe_is_left_to_a_child_that_outlives_the_server(tmp_path: Path, impatient: None) -> None:
    server, heir = fake(), tmp_path / "heir"
    script = f'setsid sleep 600 & echo $! > {heir}; exec "$@"'
    server |= {"command": "sh", "args": ["-c", script, "sh", server["command"], *server["args"]]}

    async def work(it: OpenedServers) -> str:
        return await it.call("echo", text="x")

    before = sockets_and_pipes()
    gc.disable()  # it closes them, too, at some time
    try:
        opened(servers(it=server), work)
        assert sockets_and_pipes() == before
    finally:
        gc.enable()
        os.kill(int(heir.read_text("utf-8")), signal.SIGKILL)


def test_a_server_that_dies_is_started_again_and_calls_in_flight_are_infra_faults() -> None:
    async def work(it: OpenedServers) -> None:
        before = await pid_of(it)
        sleeping = [asyncio.ensure_future(it.call("sleep", seconds=60)) for _ in range(5)]
        with pytest.raises(ToolUnavailableError):
            await it.call("die")
        for outcome in await asyncio.gather(*sleeping, return_exceptions=True):
            assert isinstance(outcome, ToolUnavailableError)
        assert await pid_of(it) != before  # waits for the restart
        assert not is_running(before)

    opened(servers(it=fake()), work)


def test_a_server_that_is_killed_under_a_call() -> None:
    async def work(it: OpenedServers) -> None:
        manager = DefaultToolManager(tuple(it.tools.values()))
        before = await pid_of(it)
        invoking = asyncio.ensure_future(manager.invoke([ToolCall("0", "sleep", "", {"seconds": 60})], it.context))
        await asyncio.sleep(0)
        os.kill(before, signal.SIGKILL)
        (result,) = await invoking
        assert result.fault is FaultKind.INFRA
        (result,) = await manager.invoke([ToolCall("0", "pid", "", {})], it.context)
        assert result.fault is None
        assert int(result.content) != before

    opened(servers(it=fake()), work)


def test_one_that_does_not_come_back_refuses_calls_and_is_tried_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rlfactory_mcp.servers._RESTART_WAIT_S", 0.3)
    broken = tmp_path / "broken"

    async def work(it: OpenedServers) -> None:
        broken.touch()
        with pytest.raises(ToolUnavailableError):
            await it.call("die")
        with pytest.raises(ToolUnavailableError, match="MCP server it is down"):
            await it.call("echo", text="x")

        async def was_tried() -> bool:
            return "cannot start: no licence" in caplog.text

        await it.until(was_tried)
        broken.unlink()
        await it.until(it.is_back)

    opened(servers(it=fake("--fail-after", str(broken))), work)


def test_a_call_that_is_cut_is_told_to_the_server_and_others_go_on() -> None:
    async def work(it: OpenedServers) -> None:
        before = await pid_of(it)
        await it.cut("sleep", seconds=60)
        assert re.fullmatch(r"\[\d+\]", await it.call("cancelled"))
        assert await pid_of(it) == before

    opened(servers(it=fake()), work)


@pytest.mark.usefixtures("impatient")
def test_a_frozen_server_is_killed_and_started_again_once_a_call_was_cut() -> None:
    async def work(it: OpenedServers) -> None:
        before = await pid_of(it)
        await it.cut("freeze")

        async def is_new() -> bool:
            try:
                return await asyncio.wait_for(pid_of(it), 1) != before
            except (TimeoutError, ToolUnavailableError):
                return False

        await it.until(is_new)
        assert not is_running(before)

    opened(servers(it=fake(ping_timeout=0.2)), work)


def test_a_server_that_is_busy_and_answers_others_is_left_alone() -> None:
    async def work(it: OpenedServers) -> None:
        before = await pid_of(it)
        answering = [asyncio.ensure_future(it.call("sleep", seconds=0.1)) for _ in range(10)]  # one after the other
        await it.cut("sleep", after=0.05, seconds=0.1)
        assert await asyncio.gather(*answering) == ["slept"] * 10
        assert await pid_of(it) == before

    opened(servers(it=fake("--serial", ping_timeout=0.5)), work)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("flags", [("--stubborn",), ("--child",), ()])
def test_closing_is_bounded_and_leaves_nothing_also_of_a_frozen_group(
    flags: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(it: OpenedServers) -> list[int]:
        pid = await pid_of(it)
        group = [pid]
        if flags == ("--child",):
            group += children(pid)
            assert len(group) == 2
        if not flags:
            os.kill(pid, signal.SIGSTOP)
        return group

    began = time.monotonic()
    group = opened(servers(it=fake(*flags)), work)
    assert time.monotonic() - began < 40
    for pid in group:
        until(lambda pid=pid: not is_running(pid), "the process to end")  # type: ignore[misc]


def test_a_server_that_exits_at_start_fails_the_opening_with_its_words() -> None:
    text = start_error(good=fake(), bad=fake("--exit-at-start", "3"), worse=fake("--exit-at-start", "4"))
    assert "MCP server 'bad' does not start: it ended with exit code 3." in text
    assert "    cannot start: no licence" in text
    assert "MCP server 'worse' does not start: it ended with exit code 4." in text
    assert "'good'" not in text


def test_secrets_are_blanked_in_a_servers_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "token-of-ours")
    flags = ("--exit-at-start", "1", "--say", "called with ${TOKEN} and password-in-env")
    text = start_error(it=fake(*flags, env={"PASSWORD": "password-in-env"}))
    assert "called with *** and ***" in text


@pytest.mark.usefixtures("impatient")
def test_a_server_that_does_not_answer_at_start() -> None:
    # A shell, which says it long before the limit, however busy the machine is.
    silent = {"command": "sh", "args": ["-c", "echo loading >&2; exec sleep 60"], "start_timeout": 2.0}
    text = start_error(it=silent)
    assert "it did not answer within 2 s (start_timeout)" in text
    assert "    loading" in text


def test_a_program_or_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "there is no program 'no-such-program'" in start_error(it={"command": "no-such-program"})
    gone = str(tmp_path / "gone")
    assert f"there is no folder '{gone}'" in start_error(it=fake(cwd=gone))
    assert "'args' holds the arguments" in start_error(it={"command": "no such program"})
    assert "'args' holds the arguments" not in start_error(it={"command": "no such program", "cwd": gone})


@pytest.mark.usefixtures("impatient")
def test_a_program_that_speaks_something_else() -> None:
    loud = {"command": sys.executable, "args": ["-c", "print('hello'); import time; time.sleep(9)"]}
    assert "did not answer" in start_error(it={**loud, "start_timeout": 0.5})


@pytest.mark.slow
def test_the_servers_end_when_this_process_is_killed(tmp_path: Path) -> None:
    script = f"""
import asyncio, os, signal, sys
sys.path[:0] = [{str(ROOT / "tests" / "support")!r}]
from mcp_calls import fake, opened, servers
async def work(it):
    print(await it.call("pid"), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
opened(servers(it=fake()), work)
"""

    async def run() -> bytes:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
        written, _ = await process.communicate()
        assert process.returncode == -signal.SIGKILL
        return written

    pid = int(asyncio.run(run()))
    until(lambda: not is_running(pid), "the server to end")


@pytest.mark.usefixtures("impatient")
def test_opening_can_be_cancelled() -> None:
    async def run() -> None:
        source = McpSource(servers(it=fake("--hang-at-start")))
        opening = asyncio.ensure_future(source.open(()))
        await asyncio.wait((opening,), timeout=0.3)
        opening.cancel()
        await asyncio.wait((opening,))
        await source.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_the_last_lines_of_much_stderr_are_kept() -> None:
    many = "print('first', file=sys.stderr); [print('x' * 2000, n, file=sys.stderr) for n in range(3000)]"
    text = start_error(
        it={"command": sys.executable, "args": ["-c", f"import sys; {many}; print('last', file=sys.stderr)"]}
    )
    assert "    last" in text
    assert "first" not in text
    assert len(text) < 30_000


def test_an_answer_after_the_cut_is_nobodys() -> None:
    async def work(it: OpenedServers) -> None:
        await it.cut("sleep", after=0.05, seconds=0.2)
        await asyncio.gather(*(it.call("sleep", seconds=0.4) for _ in range(3)))
        assert await it.call("echo", text="mine") == "mine"

    opened(servers(it=fake()), work)


@pytest.mark.usefixtures("impatient")
def test_a_manager_deadline_restarts_what_hangs() -> None:
    async def work(it: OpenedServers) -> None:
        manager = DefaultToolManager(tuple(it.tools.values()))
        (result,) = await manager.invoke([ToolCall("0", "sleep", "", {"seconds": 30})], it.context)
        assert result.fault is FaultKind.INFRA
        assert "did not answer in time" in result.content
        (result,) = await manager.invoke([ToolCall("1", "echo", "", {"text": "again"})], it.context)
        assert result.content == "again"

    opened(servers(it=fake("--serial", timeout=1, ping_timeout=0.2)), work)
