"""OpenEnv's echo environment in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT = "max_concurrent_envs=1,"  # in the environment as OpenEnv's command makes it
SERVER = """
import uvicorn
from rlfactory_core.utils.listening import listener
from server.app import app
sock = listener("127.0.0.1")
sock.listen(128)
print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[sock])
"""


@contextmanager
def echo_server(folder: Path, sessions: int) -> Iterator[str]:
    """The address of the environment that ``openenv init`` makes, with room for so many sessions."""
    openenv = Path(sys.executable).with_name("openenv")
    subprocess.run([openenv, "init", "echo_world"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    app = folder / "echo_world" / "server" / "app.py"
    text = app.read_text(encoding="utf-8")
    assert LIMIT in text, "OpenEnv's template has changed"
    app.write_text(text.replace(LIMIT, f"max_concurrent_envs={sessions},"), encoding="utf-8")
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, cwd=folder / "echo_world", stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()
