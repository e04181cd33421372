"""The server of the demo's judge: ``transformers serve`` in a process that ends with its block."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from rlfactory_core.clients import OpenAIClient
from rlfactory_core.errors import BackendError
from rlfactory_core.utils.display import printable

LOOPBACK = "127.0.0.1"
# `transformers serve` alone: its own command imports the other subcommands too.
_PROGRAM = """
import typer
from transformers.cli.serve import Serve
app = typer.Typer()
app.command()(Serve)
app()
"""
# Beside training on a CPU: one thread, and nothing from the network. The server lists the models of the cache, and
# fails without one; its working directory serves as an empty cache.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_CACHE": ".", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
}  # fmt: skip
# Variables from launchers such as torchrun, which a server must not inherit.
_LAUNCHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
_POLL_S, _GRACE_S = 0.1, 3.0
_SHOWN = 4096  # characters of the log in an error


@asynccontextmanager
async def local_server(model: Path, *, ready_s: float = 180.0) -> AsyncIterator[str]:
    """A server on this machine during the ``async with`` block; yields its address, which ends with ``/v1``.

    On Linux it also ends if the thread that started it ends, or this process is killed.

    Args:
        model: a folder as `save_pretrained` writes it, with its tokenizer; its path is the model's id.
        ready_s: how long to wait for its first answer, in seconds.

    Raises:
        BackendError: the server does not start; the message has the end of its log.
    """
    with socket.create_server((LOOPBACK, 0)) as probe:
        port = probe.getsockname()[1]
    url = f"http://{LOOPBACK}:{port}/v1"
    with tempfile.TemporaryDirectory(prefix="rlfactory-judge-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "server.log"
        process = _start(model, port, log)
        try:
            await _until_ready(process, OpenAIClient(url, str(model), retries=0), ready_s, log)
            yield url
        finally:
            _signal(process, signal.SIGTERM)  # before any waiting, which may be cancelled
            await asyncio.to_thread(_wait, process)


def _start(model: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _PROGRAM, str(model), "--host", LOOPBACK, "--port", str(port), "--device", "cpu"]
    with_us = ("setpriv", "--pdeathsig", "TERM", "--") if shutil.which("setpriv") else ()
    inherited = {name: value for name, value in os.environ.items() if name not in _LAUNCHERS}
    with log.open("wb") as output:
        return subprocess.Popen(  # noqa: S603
            [*with_us, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=log.parent,
            env={**inherited, **_ENVIRONMENT}, start_new_session=True,
        )  # fmt: skip


async def _until_ready(process: subprocess.Popen[bytes], client: OpenAIClient, seconds: float, log: Path) -> None:
    """Wait until the model answers a question: another program on the port would not have it."""
    ends = time.monotonic() + seconds
    while True:
        try:
            await client.open()
            await client.close()
            return
        except BackendError as error:
            code = process.poll()
            if code is not None or time.monotonic() >= ends:
                how = f"does not answer after {seconds:g} s ({error})" if code is None else f"ended with code {code}"
                end = printable(log.read_text(encoding="utf-8", errors="replace")[-_SHOWN:])  # noqa: ASYNC240
                raise BackendError(f"The judge's server {how}. The end of its log:\n{end}") from error
            await asyncio.sleep(_POLL_S)


def _wait(process: subprocess.Popen[bytes]) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
