"""Processes of one group share one set of servers, whoever starts, dies or leaves first."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from documents import ROOT
from mcp_calls import OpenedServers, context, fake, opened, servers
from process_tree import is_running, parent
from rlfactory_mcp.sharing import client
from rlfactory_mcp.sharing.rendezvous import Rendezvous
from rlfactory_mcp.source import McpSource
from waiting import until

from rlfactory_core.errors import BackendError, ToolArgumentsError, ToolError, ToolUnavailableError

pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")

pytestmark = pytest.mark.slow  # the end of a group is waited for

SUPPORT = str(ROOT / "tests" / "support")
WORKER = """
import sys
sys.path[:0] = [sys.argv[1]]
from mcp_calls import fake, opened, servers
async def work(it):
    print(await it.call("pid"), flush=True)
    sys.stdin.readline()
opened(servers(it=fake(*sys.argv[3:])), work, group=sys.argv[2])
"""


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the groups of a test meet; nobody is there afterwards."""
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    until(lambda: not any(folder.iterdir()), "the files to go")


@pytest.fixture
def group() -> str:
    return uuid.uuid4().hex


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def worker(folder: Path) -> Iterator[Start]:
    """Starts a process that opens the tools, prints its server's pid and stays until its stdin has a line."""
    started: list[subprocess.Popen[str]] = []

    def start(group: str, *flags: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WORKER, SUPPORT, group, *flags]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=120)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_processes_that_start_at_once_use_one_server_and_the_last_one_ends_it(group: str, worker: Start) -> None:
    workers = [worker(group) for _ in range(4)]
    (pid,) = {int(line_of(process)) for process in workers}
    host = parent(pid)
    for process in workers[1:]:
        process.communicate("\n", timeout=120)
        assert process.returncode == 0
    assert is_running(pid)
    workers[0].kill()
    workers[0].communicate(timeout=120)
    until(lambda: not is_running(pid) and not is_running(host), "the servers to end")


@pytest.mark.usefixtures("folder")
def test_the_tools_are_those_of_one_process(group: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work(it: OpenedServers) -> None:
        assert len(it.tools) == 16
        assert it.tools["echo"].idempotent
        assert it.tools["echo"].spec.parameters["properties"] == {"text": {"type": "string"}}
        assert await it.call("echo", text="naïve 数\n🌍") == "naïve 数\n🌍"
        assert await asyncio.gather(*(it.call("echo", text=str(n)) for n in range(100))) == list(map(str, range(100)))
        with pytest.raises(ToolError, match="no such city"):
            await it.call("show", kind="error")
        with pytest.raises(ToolArgumentsError, match="negative"):
            await it.call("refuse", code=-32602, message="negative")
        with pytest.raises(ToolUnavailableError):
            await it.call("die")
        assert await it.call("echo", text="again") == "again"

    opened(servers(it=fake("--page", "5")), work, group=group)
    assert "MCP server it is down: it ended with exit code 7." in caplog.text  # what the host says is said here


@pytest.mark.usefixtures("folder")
def test_a_call_that_is_cut_is_cut_in_the_host_too(group: str) -> None:
    async def work(it: OpenedServers) -> None:
        await it.cut("sleep", seconds=60)
        assert len(await it.call("cancelled")) > len("[]")

    opened(servers(it=fake()), work, group=group)


async def kill_the_host_under_a_call(it: OpenedServers, pid: int) -> None:
    """The call is an infra fault. ``pid`` is the server's."""
    sleeping = asyncio.ensure_future(it.call("sleep", seconds=60))
    await asyncio.sleep(0)
    os.kill(parent(pid), signal.SIGKILL)
    with pytest.raises(ToolUnavailableError):
        await sleeping


@pytest.mark.usefixtures("folder")
def test_a_host_that_is_killed_gives_infra_faults_and_the_next_call_starts_another(group: str) -> None:
    async def work(it: OpenedServers) -> None:
        pid = int(await it.call("pid"))
        await kill_the_host_under_a_call(it, pid)
        fresh: list[str] = await asyncio.gather(*(it.call("pid") for _ in range(5)))
        assert len(set(fresh)) == 1
        assert int(fresh[0]) != pid
        until(lambda: not is_running(pid), "the server to end")

    opened(servers(it=fake()), work, group=group)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("at_open", [False, True])
def test_a_host_that_stops_is_killed_and_another_is_started(
    group: str, at_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(it: OpenedServers) -> None:
        pid = int(await it.call("pid"))
        host = parent(pid)
        os.kill(host, signal.SIGSTOP)
        if at_open:
            other = McpSource(servers(it=fake()))
            tools = {tool.spec.name: tool for tool in await other.open((), group)}
            fresh = int(await tools["pid"].call({}, context("b")))
            await other.close()
        else:
            with pytest.raises(ToolUnavailableError):
                await it.call("sleep", seconds=60)
            fresh = int(await it.call("pid"))
        assert fresh != pid
        until(lambda: not is_running(host) and not is_running(pid), "the servers to end")

    monkeypatch.setattr(client, "_SILENT_S", 3.0)
    opened(servers(it=fake()), work, group=group)


def test_a_host_that_is_killed_at_the_end_leaves_no_folder(folder: Path, group: str) -> None:
    async def work(it: OpenedServers) -> None:
        pid = int(await it.call("pid"))
        await kill_the_host_under_a_call(it, pid)
        until(lambda: not is_running(pid), "the server to end")

    opened(servers(it=fake()), work, group=group)
    assert not list(folder.iterdir())


@pytest.mark.usefixtures("folder")
def test_a_call_that_is_cut_while_a_host_starts_leaves_one_host(group: str) -> None:
    async def work(it: OpenedServers) -> None:
        pid = int(await it.call("pid"))
        os.kill(parent(pid), signal.SIGKILL)
        with pytest.raises(ToolUnavailableError):
            await it.call("sleep", seconds=60)
        await asyncio.gather(*(it.cut("echo", after=0.001 * n, text="x") for n in range(3)))
        assert len(set(await asyncio.gather(*(it.call("pid") for _ in range(5))))) == 1

    opened(servers(it=fake()), work, group=group)


@pytest.mark.usefixtures("folder")
def test_trajectories_of_a_process_end_with_it(group: str) -> None:
    async def work(it: OpenedServers) -> None:
        first = context("a")
        await it.call("remember", first, key="k", value="v")
        assert await it.call("recall", first, key="k") == "v"
        ended = int(await it.call("pid", first))
        await first.end()
        assert not is_running(ended)
        other = McpSource(servers(it=fake(session="trajectory")))
        tools = {tool.spec.name: tool for tool in await other.open((), group)}
        pid = int(await tools["pid"].call({}, context("b")))
        assert is_running(pid)
        await other.close()
        await it.until(_gone(pid))
        assert await it.call("echo", context("c"), text="here") == "here"

    opened(servers(it=fake(session="trajectory")), work, group=group)


def _gone(pid: int) -> Callable[[], Awaitable[bool]]:
    async def gone() -> bool:
        return not is_running(pid)

    return gone


def test_every_process_gets_the_same_words_when_a_server_does_not_start(group: str, worker: Start) -> None:
    workers = [worker(group, "--exit-at-start", "3") for _ in range(2)]
    for process in workers:
        _, words = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "BackendError: MCP server 'it' does not start: it ended with exit code 3." in words
        assert "cannot start: no licence" in words


def test_other_groups_and_other_servers_are_not_shared(worker: Start) -> None:
    first, second, third = worker("one"), worker("two"), worker("one", "--page", "2")
    assert len({line_of(process) for process in (first, second, third)}) == 3
    for process in (first, second, third):
        process.communicate("\n", timeout=120)


def test_a_folder_that_others_may_enter_is_not_used(folder: Path) -> None:
    place = Rendezvous(folder / "open")
    place.folder.mkdir(mode=0o777)
    place.folder.chmod(0o777)
    with pytest.raises(BackendError, match="open to other users"), place.try_lock():
        pass
    place.folder.rmdir()


@pytest.mark.usefixtures("folder")
def test_what_only_the_host_would_see_is_checked_here_first(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ValueError, match="NOT_SET"):
        opened(servers(it=fake(env={"A": "${NOT_SET}"})), None, group=group)  # type: ignore[arg-type]


@pytest.mark.usefixtures("folder")
def test_secrets_are_not_in_the_hosts_arguments(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "a-secret-of-ours")

    async def work(it: OpenedServers) -> None:
        assert await it.call("environment", name="KEY") == "a-secret-of-ours"
        host = parent(int(await it.call("pid")))
        assert b"secret" not in Path(f"/proc/{host}/cmdline").read_bytes()  # noqa: ASYNC240

    opened(servers(it=fake(env={"KEY": "${TOKEN}"})), work, group=group)


@pytest.mark.usefixtures("folder")
def test_a_host_that_is_told_to_end_does_so_in_order(group: str) -> None:
    async def work(it: OpenedServers) -> None:
        pid = int(await it.call("pid"))
        os.kill(parent(pid), signal.SIGTERM)
        await it.until(_gone(pid))
        assert int(await it.call("pid")) != pid

    opened(servers(it=fake()), work, group=group)


def test_a_broken_host_is_an_error_and_not_a_hang(folder: Path, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(BackendError, match="does not start"):
        opened(servers(it=fake()), None, group=group)  # type: ignore[arg-type]
    for place in folder.iterdir():
        (place / "lock").unlink()
        place.rmdir()
