"""MCP servers that are killed, frozen or never start: an infra fault, then answers again, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from process_tree import state
from real_servers import (
    Server,
    answered,
    call,
    free_port,
    needs_servers,
    npm,
    opened,
    processes,
    pypi,
    tagged,
    trajectory,
    write,
)
from waiting import until

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.types import FaultKind

pytestmark = [needs_servers, pytest.mark.usefixtures("nothing_left")]


class Pipes:
    """Named pipes in a folder: a server that reads one is in the middle of a call until the test says otherwise."""

    def __init__(self, folder: Path, count: int) -> None:
        self.paths = [folder / f"pipe-{n}" for n in range(count)]
        for path in self.paths:
            os.mkfifo(path)
        self._ends: list[int] = []

    async def are_read(self) -> None:
        """Wait until there is a reader of every pipe."""
        for path in self.paths:
            await asyncio.to_thread(until, partial(self._is_read, path), f"{path.name} to be read")

    def let_go(self, text: str = "") -> None:
        """Write to every pipe and end the reading."""
        while self._ends:
            with suppress(BrokenPipeError), open(self._ends.pop(), "w", encoding="utf-8") as end:
                end.write(text)

    def _is_read(self, path: Path) -> bool:
        try:
            self._ends.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False  # nobody has opened it
        return True


def only(found: set[int]) -> int:
    (pid,) = found
    return pid


def is_frozen(pid: int) -> bool:
    return state(pid) == "T"


def has_ended(pid: int) -> bool:
    """Whether nothing is left of it: until it has been waited for, its end of a pipe may still be open."""
    return not Path(f"/proc/{pid}").exists()


def test_a_server_killed_mid_call_is_started_again(tmp_path: Path) -> None:
    pipes = Pipes(tmp_path, 3)

    async def work() -> None:
        async with opened({"files": npm("filesystem", str(tmp_path))}, retries=0) as manager:
            first = only(processes("server-filesystem"))
            reads = [write("read_text_file", path=str(path)) for path in pipes.paths]
            flying = asyncio.ensure_future(manager.invoke(reads, trajectory()))
            await pipes.are_read()
            os.kill(first, signal.SIGKILL)
            results = await flying
            pipes.let_go()
            assert [result.fault for result in results] == [FaultKind.INFRA] * 3
            assert max(result.latency_s for result in results) < 10.0  # not the deadline: the death is noticed
            assert str(tmp_path) not in " ".join(result.content for result in results)
            assert "pipe-0" in (await answered(manager, "list_directory", path=str(tmp_path))).content
            assert only(processes("server-filesystem")) != first

    asyncio.run(work())


def test_a_call_that_may_be_repeated_gets_its_answer_from_the_restarted_server(tmp_path: Path) -> None:
    pipes = Pipes(tmp_path, 1)

    async def work() -> None:
        async with opened({"files": npm("filesystem", str(tmp_path))}, retries=5) as manager:
            first = only(processes("server-filesystem"))
            flying = asyncio.ensure_future(call(manager, "read_text_file", path=str(pipes.paths[0])))
            await pipes.are_read()
            os.kill(first, signal.SIGSTOP)  # it must neither see the pipe's end, nor leave it to the next server
            await asyncio.to_thread(until, lambda: is_frozen(first), "the server to freeze")
            pipes.let_go()
            os.kill(first, signal.SIGKILL)
            await asyncio.to_thread(until, lambda: has_ended(first), "the server to end")
            await pipes.are_read()
            pipes.let_go("at last")
            result = await flying
            assert (result.content, result.fault) == ("at last", None)
            assert result.attempts > 1

    asyncio.run(work())


def test_a_server_that_died_between_two_calls_is_not_noticed_by_the_model(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").touch()

    async def work() -> None:
        async with opened({"files": npm("filesystem", str(tmp_path))}) as manager:
            first = only(processes("server-filesystem"))
            os.kill(first, signal.SIGKILL)
            await asyncio.to_thread(until, lambda: has_ended(first), "the server to end")
            listed = await call(manager, "list_directory", path=str(tmp_path))
            assert (listed.content, listed.fault) == ("[FILE] poem.txt", None)

    asyncio.run(work())


@pytest.mark.parametrize("idle", [False, True])
def test_a_frozen_server_is_cut_killed_and_started_again(tmp_path: Path, idle: bool) -> None:
    pipes = Pipes(tmp_path, 1)

    async def work() -> None:
        server = {**npm("filesystem", str(tmp_path)), "ping_timeout": 0.5}
        async with opened({"files": server}, retries=0, deadline_s=1.0) as manager:
            first = only(processes("server-filesystem"))
            if idle:
                os.kill(first, signal.SIGSTOP)
                result = await call(manager, "list_directory", path=str(tmp_path))
            else:
                flying = asyncio.ensure_future(call(manager, "read_text_file", path=str(pipes.paths[0])))
                await pipes.are_read()
                os.kill(first, signal.SIGSTOP)
                result = await flying
                pipes.let_go()
            assert result.fault is FaultKind.INFRA
            assert result.latency_s < 30.0
            assert "pipe-0" in (await answered(manager, "list_directory", path=str(tmp_path))).content
            assert only(processes("server-filesystem")) != first

    asyncio.run(work())


def test_closing_does_not_wait_for_a_frozen_server(tmp_path: Path) -> None:
    async def work() -> float:
        async with opened({"files": npm("filesystem", str(tmp_path))}):
            os.kill(only(processes("server-filesystem")), signal.SIGSTOP)
            began = asyncio.get_running_loop().time()
        return asyncio.get_running_loop().time() - began

    assert asyncio.run(work()) < 60.0


def test_a_server_that_keeps_dying_is_not_started_over_and_over(tmp_path: Path) -> None:
    starts, broken = tmp_path / "starts", tmp_path / "broken"
    node = npm("filesystem", str(tmp_path))
    script = f'echo >> {starts}; test -e {broken} && exit 3; exec "$0" "$@"'
    server = {**node, "command": "sh", "args": ["-c", script, node["command"], *node["args"]]}

    async def work() -> None:
        limits = {"retries": 0, "deadline_s": 1.0, "breaker_failures": 1000}
        async with opened({"files": server}, **limits) as manager:
            broken.touch()
            os.kill(only(processes("server-filesystem")), signal.SIGKILL)
            for _ in range(2):
                results = await asyncio.gather(
                    *(call(manager, "list_directory", path=str(tmp_path)) for _ in range(50))
                )
                assert {result.fault for result in results} == {FaultKind.INFRA}
            assert 2 <= len(starts.read_text()) < 12
            broken.unlink()
            assert "[FILE] starts" in (await answered(manager, "list_directory", path=str(tmp_path))).content

    asyncio.run(work())


def start(server: Server) -> None:
    async def work() -> None:
        async with opened({"broken": server}):
            pass

    asyncio.run(work())


def test_a_server_that_cannot_start_is_an_error_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"(?s)broken.*Nowhere/Land"):
        start(pypi("time", "--local-timezone", "Nowhere/Land"))
    with pytest.raises(BackendError, match=r"(?s)broken.*no-such-folder"):
        start(npm("filesystem", str(tmp_path / "no-such-folder")))
    with pytest.raises(BackendError, match=r"(?s)broken.*no-such-command"):
        start({"command": "no-such-command"})
    with pytest.raises(BackendError, match=r"(?s)broken.*http://127.0.0.1:"):
        start({"type": "streamable-http", "url": f"http://127.0.0.1:{free_port()}/mcp"})


def test_a_server_that_never_says_a_word_is_given_up(tmp_path: Path) -> None:
    silent = [sys.executable, "-c", "import sys, time; print('loading', file=sys.stderr, flush=True); time.sleep(600)"]
    with pytest.raises(BackendError, match=r"(?s)broken.*loading"):
        start({**tagged({"command": silent[0], "args": silent[1:]}), "start_timeout": 1.0})


def test_variables_are_filled_in_and_a_missing_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOUR", "teal")
    monkeypatch.delenv("SHADE", raising=False)

    async def work() -> None:
        async with opened({"everything": npm("everything", "stdio", PAINT="dark ${COLOUR}")}) as manager:
            seen = (await call(manager, "get-env")).content
            assert '"PAINT": "dark teal"' in seen
            assert "COLOUR" not in seen  # of our own environment a server gets only what it is given

    asyncio.run(work())
    with pytest.raises(UsageError, match="SHADE"):
        start(npm("everything", "stdio", PAINT="${SHADE}"))
