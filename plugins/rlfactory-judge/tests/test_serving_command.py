"""``rlfactory judge serve`` as a user runs it, with stand-ins for the servers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from judge_serving import living, pids, stub_transformers
from rlfactory_judge.serving.command import serve
from rlfactory_judge.serving.servers import free_port
from waiting import until

from rlfactory_core.errors import UsageError

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]


class Command:
    """The command in a process of its own."""

    def __init__(self, place: Path, *words: str) -> None:
        self.folder = place / "orders"
        self.model = place / "model"
        self.said = place / "said"
        program = place / "program"
        if not self.folder.exists():
            self.folder.mkdir()
            self.model.mkdir()
            (self.model / "config.json").write_text("{}")
            stub_transformers(program, self.folder)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(program), os.environ.get("PYTHONPATH", "")]),
            "RLFACTORY_CACHE": str(place / "cache"),
            "CUDA_VISIBLE_DEVICES": "",
        }
        command = [sys.executable, "-m", "rlfactory_core", "judge", "serve", "--backend", "transformers"]
        command += ["--model", str(self.model), *words]
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(command, env=environment, stderr=said, start_new_session=True)

    @property
    def text(self) -> str:
        return self.said.read_text()

    def ready(self) -> None:
        until(lambda: "for runs elsewhere" in self.text or self.process.poll() is not None, "the servers to be ready")
        assert self.process.poll() is None, self.text


@contextmanager
def serving(place: Path, *words: str) -> Iterator[Command]:
    command = Command(place, *words)
    try:
        yield command
    finally:
        if command.process.poll() is None:
            command.process.kill()
        command.process.wait()
        until(lambda: not living(command.folder), "all servers to end")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_server_runs_until_it_is_stopped(tmp_path: Path, number: int) -> None:
    with serving(tmp_path, "--port", "0") as command:
        command.ready()
        (url,) = re.findall(r"--judge (\S+)", command.text)
        with urllib.request.urlopen(f"{url}/models") as response:
            assert json.load(response)["data"][0]["id"] == str(command.model)
        (log,) = re.findall(r", log (\S+)", command.text)
        assert "listening" in Path(log).read_text()
        command.process.send_signal(number)
        assert command.process.wait(60) == 0
        assert not living(command.folder)
        assert command.text.endswith("stopped\n")


def test_a_killed_supervisor_leaves_no_server(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as command:
        command.ready()
        assert len(living(command.folder)) == 2
        os.killpg(command.process.pid, signal.SIGKILL)
        command.process.wait()
        until(lambda: not living(command.folder), "the server and its child to end")


def test_stopping_it_while_the_server_starts_is_a_stop_too(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as command:
        (command.folder / "ill").touch()
        until(lambda: pids(command.folder, "server"), "the server to start")
        command.process.send_signal(signal.SIGINT)
        assert command.process.wait(60) == 130
        assert "stopped before the server was ready" in command.text


def test_a_server_that_dies_again_and_again_is_explained(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as command:
        command.ready()
        (command.folder / "die_at_start").write_text("torch.OutOfMemoryError: CUDA out of memory.")
        (command.folder / "die").touch()
        assert command.process.wait(60) == 2
        assert "error: The server has failed 3 times in a row" in command.text
        assert "--gpu-memory-utilization" in command.text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--tp", "2"], "needs vLLM on GPUs"),
        (["--replicas", "2"], "--replicas 2 needs vLLM"),
        (["--device", "cuda"], "need 1 GPU, and 0 can be seen"),
        (["--model", "/nowhere/model"], "There is no folder /nowhere/model"),
        (["--host", "192.0.2.1", "--port", "0"], "Nobody can listen on 192.0.2.1"),
        (["--replicas", "0"], "--replicas"),
    ],
)
def test_what_cannot_be_served_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    assert expected in refusal(tmp_path, monkeypatch, *words)


def test_a_port_that_is_taken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port("127.0.0.1")
    with socket.create_server(("127.0.0.1", port)):
        said = refusal(tmp_path, monkeypatch, "--port", str(port))
    assert f"Port {port} on 127.0.0.1 cannot be used" in said


def refusal(place: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """What the command says in this process, where it starts no server and exits with 2."""
    (model := place / "model").mkdir()
    (model / "config.json").write_text("{}")
    monkeypatch.setenv("RLFACTORY_CACHE", str(place / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("rlfactory_judge.serving.command.keep_serving", None)
    command = ["--backend", "transformers", "--model", str(model), *words]
    result = CliRunner().invoke(serve, command)
    code = result.exception.exit_code if isinstance(result.exception, UsageError) else result.exit_code
    assert code == 2
    return f"{result.output}{result.exception}"
