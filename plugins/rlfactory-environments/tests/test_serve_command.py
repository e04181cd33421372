"""`rlfactory serve` as a user starts and ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest


@contextmanager
def serve(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "rlfactory_core", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_task_is_served_until_ctrl_c() -> None:
    with serve("--plugin", "search", "--as", "openenv", "--sessions", "3") as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "(3 sessions at most). Ctrl-C ends it." in said
        address = next(word for word in said.split() if word.startswith("http://"))
        schemas = httpx.get(f"{address}/schema", timeout=30).json()
        assert set(schemas) == {"action", "observation", "state"}
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert "Stopped." in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--plugin", "serch"), "search"),
        (("--plugin", "search", "--colour", "red"), "colour"),
        (("--plugin", "search", "--host", "256.0.0.1"), "Choose another --host or --port"),
    ],
)
def test_a_mistake_is_explained(arguments: tuple[str, ...], said: str) -> None:
    with serve(*arguments) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said in errors
    assert "Traceback" not in errors
