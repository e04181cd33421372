"""A server's process: nothing of it is left, whoever ends and however."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from judge_serving import living, pids, program, stub_server
from process_tree import is_running
from rlfactory_judge.serving.servers import ServerProcess, free_port
from waiting import until

from rlfactory_core.errors import BackendError

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

# A process that owns a server, and a child that keeps all its descriptors open, and then waits.
_OWNER = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {support!r})
from judge_serving import stub_server
from rlfactory_judge.serving.servers import ServerProcess
process = ServerProcess(stub_server(Path({folder!r}), port={port}), Path({folder!r}) / "log")
if not os.fork():
    time.sleep(600)
sys.stdin.read()
"""

# A server whose child, like Python's resource tracker, tidies up after it. The test says when the child may.
_TIDY = """
import os, signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
if os.fork():
    (folder / "server.pid").write_text(str(os.getpid()))
    time.sleep(600)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
(folder / "untidy").touch()
while not (folder / "may").exists():
    time.sleep(0.02)
(folder / "untidy").unlink()
"""


@contextmanager
def server(folder: Path, grace_s: float = 5.0) -> Iterator[ServerProcess]:
    process = ServerProcess(stub_server(folder), folder / "log", grace_s=grace_s)
    try:
        until(lambda: len(pids(folder)) == 2 and "listening" in process.last_lines(), "the server")
        yield process
    finally:
        asyncio.run(process.stop())


def test_stopping_ends_the_server_and_its_child(tmp_path: Path) -> None:
    with server(tmp_path) as process:
        assert living(tmp_path) == pids(tmp_path)
        assert process.exit_code is None
        asyncio.run(process.stop())
        assert process.exit_code == -signal.SIGTERM
        until(lambda: not living(tmp_path), "both to end")


def test_a_server_deaf_to_sigterm_is_killed(tmp_path: Path) -> None:
    (tmp_path / "stubborn").touch()
    with server(tmp_path, grace_s=0.1) as process:
        asyncio.run(process.stop())
        assert process.exit_code == -signal.SIGKILL
        until(lambda: not living(tmp_path), "both to end")


def test_a_server_that_ends_takes_its_child_along(tmp_path: Path) -> None:
    with server(tmp_path) as process:
        (tmp_path / "die").touch()
        until(lambda: process.exit_code is not None, "the server to end")
        assert process.exit_code == 3
        assert process.last_lines(1) == "asked to die"
        asyncio.run(process.stop())
        until(lambda: not living(tmp_path), "its child to end")


def test_a_child_that_tidies_up_after_the_server_has_the_time(tmp_path: Path) -> None:
    pid, untidy = tmp_path / "server.pid", tmp_path / "untidy"
    process = ServerProcess(program(sys.executable, "-c", _TIDY, str(tmp_path)), tmp_path / "log", grace_s=60.0)
    until(lambda: pid.exists() and pid.read_text() and untidy.exists(), "the server and its child")
    stopping = threading.Thread(target=lambda: asyncio.run(process.stop()))
    stopping.start()
    until(lambda: process.exit_code is not None, "the server to end")
    (tmp_path / "may").touch()
    stopping.join()
    assert not untidy.exists()


def test_ctrl_c_in_a_terminal_is_not_for_the_server(tmp_path: Path) -> None:
    with server(tmp_path) as process:
        for pid in pids(tmp_path):
            assert os.getsid(pid) == process.pid != os.getsid(0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_ends_with_its_owner_even_where_a_fork_of_that_lives_on(tmp_path: Path, number: int) -> None:
    port = free_port("127.0.0.1")
    support = str(Path(__import__("judge_serving").__file__).parent)
    code = _OWNER.format(support=support, folder=str(tmp_path), port=port)
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True)
    try:
        until(lambda: len(living(tmp_path)) == 2, "the server")
        owner.send_signal(number)
        owner.wait()
        until(lambda: not living(tmp_path), "the server and its child to end")
    finally:
        os.killpg(owner.pid, signal.SIGKILL)  # the fork
        owner.communicate()


def test_what_a_launcher_says_of_its_process_is_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("HOME_OF_TEST", "kept")
    words = "import os; print(os.environ.get('RANK'), os.environ['HOME_OF_TEST'], os.environ['MORE'])"
    process = ServerProcess(program(sys.executable, "-c", words, environment={"MORE": "given"}), tmp_path / "log")
    until(lambda: process.exit_code is not None, "its end")
    asyncio.run(process.stop())
    assert process.last_lines() == "None kept given"


def test_a_program_that_is_not_there_is_an_ending_like_others(tmp_path: Path) -> None:
    process = ServerProcess(program(str(tmp_path / "absent")), tmp_path / "log")
    until(lambda: process.exit_code is not None, "its end")
    asyncio.run(process.stop())
    assert process.exit_code == 127
    assert "No such file or directory" in process.last_lines()


def test_a_log_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="cannot be started"):
        ServerProcess(program(sys.executable), tmp_path / "absent" / "log")


def test_last_lines_are_those_since_its_start_without_colours(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of the server before\n")
    words = r"print('one\n\x1b[31mtwo\x1b[0m\nshards: 10%\rshards: 100%\x07')"
    process = ServerProcess(program(sys.executable, "-c", words), log)
    until(lambda: process.exit_code is not None, "its end")
    asyncio.run(process.stop())
    assert process.last_lines() == "one\ntwo\nshards: 10%\nshards: 100%\\x07"
    assert process.last_lines(1) == "shards: 100%\\x07"
    assert not is_running(process.pid)
