"""OpenEnv's echo environment as its own command makes it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ECHO = """
import sys
from rlfactory_core.serving import listener
import uvicorn
from server.app import app
sock = listener("127.0.0.1", int(sys.argv[1]))
print(f"at http://127.0.0.1:{sock.getsockname()[1]} now", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[sock])
"""
LIMIT = "max_concurrent_envs={},"  # in the environment that the command makes


def openenv(*arguments: str, place: Path) -> str:
    """What OpenEnv's own command writes, which has to end well."""
    command = [str(Path(sys.executable).with_name("openenv")), *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make_echo(place: Path, sessions: int = 1) -> Path:
    """The environment's folder; it allows so many sessions."""
    openenv("init", "echo_world", place=place)
    app = place / "echo_world" / "server" / "app.py"
    text = app.read_text(encoding="utf-8")
    assert LIMIT.format(1) in text, "OpenEnv's template has changed"
    app.write_text(text.replace(LIMIT.format(1), LIMIT.format(sessions)), encoding="utf-8")
    return place / "echo_world"


@contextmanager
def serving(*command: str, place: Path) -> Iterator[str]:
    """The address that a server's first line names; the server ends with the block."""
    with running(*command, place=place) as (_, url):
        yield url


@contextmanager
def running(*command: str, place: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """As `serving`, with the server's process."""
    with subprocess.Popen([sys.executable, *command], cwd=place, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield process, next(word for word in line.split() if word.startswith("http://"))
        finally:
            process.kill()
