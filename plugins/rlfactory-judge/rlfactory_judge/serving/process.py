"""A server's process, which logs to a file and ends with all its children; and one for a small model beside a run."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import httpx

from rlfactory_core.errors import BackendError
from rlfactory_judge.serving import guard
from rlfactory_judge.serving.servers import LOOPBACK, Address, Launch, Served, free_port, launch, local_model

_TAIL_BYTES = 1 << 16
_MARGIN_S = 5.0  # for the guard, beyond the server's own grace
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ANSWERED = re.compile(r'"[A-Z]+ \S+ HTTP/[0-9.]+" 2[0-9][0-9]')  # successful requests, which would hide errors
# Variables from launchers such as torchrun, which a server must not inherit.
_LAUNCHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
_POLL_S = 0.1
_LOOK_S = 10.0  # for one health check
_GLANCE_S = 1.0  # for a health check during the start: it may have ended, and another program use its port
_FIRST_S = 120.0  # at least, for the model's first answer, before which it may compile or warm up
_LINES = 300  # of a log that are searched for an error
_SHOWN = 400  # characters of it
_ERROR = re.compile(r"(?:\b\w+(?:Error|Exception)\b|\berror): .*")
_TRIES = 3  # of a local server, in case another program takes the port first
_PORT_TAKEN = re.compile(r"address already in use|errno 98\b|port \d+ is already in use", re.IGNORECASE)
_GRACE_S = 3.0  # of a local server, which has no state to save
# Of a local server, beside training on a CPU: one thread, and nothing from the network.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


class ServerProcess:
    """One server and its guard, which both end when this process ends. The output is appended to ``log``.

    Args:
        grace_s: seconds between SIGTERM and SIGKILL.
        scratch: a folder that is removed if this process is killed; otherwise the caller removes it.

    Raises:
        BackendError: no process can be started.
    """

    def __init__(self, launch: Launch, log: Path, *, grace_s: float = 10.0, scratch: Path | None = None) -> None:
        self.log = log
        self._grace_s = grace_s
        told = (str(grace_s), str(os.getpid()), str(scratch or ""))
        inherited = {name: value for name, value in os.environ.items() if name not in _LAUNCHERS}
        try:
            with log.open("ab") as output:
                self._from = output.tell()
                self._guard = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-I", guard.__file__, *told, "--", *launch.command],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    cwd=log.parent,  # our own folder: `python -m` imports from the working directory
                    env={**inherited, **launch.environment},
                    start_new_session=True,  # only we get a terminal's Ctrl-C, and then stop the server
                )
        except OSError as error:
            raise BackendError(f"The server cannot be started: {error}.") from error

    @property
    def pid(self) -> int:
        """The process id of the guard, which lives exactly as long as the server."""
        return self._guard.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 plus the signal's number if a signal ended it."""
        return self._guard.poll()

    def last_lines(self, count: int = 15) -> str:
        """The end of its output, without colours, empty lines and successful requests."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._from, size - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        lines = [line.rpartition("\r")[2].rstrip() for line in _COLOURS.sub("", text).split("\n")]
        return "\n".join([line for line in lines if line and not _ANSWERED.search(line)][-count:])

    async def wait_until_ready(self, url: str, model: str, seconds: float) -> None:
        """Wait at most ``seconds`` until the server answers questions to ``model`` at ``url``, which ends with /v1.

        Raises:
            BackendError: it ends, the time is over, or the server at that address does not have the model.
        """
        ends = time.monotonic() + seconds
        async with httpx.AsyncClient(trust_env=False) as client:
            while not await _is_healthy(client, url, _GLANCE_S):
                if self.exit_code is not None:
                    raise self._ended()
                if time.monotonic() >= ends:
                    raise self._failed(f"The server does not answer at {url} after {seconds:g} s.")
                await asyncio.sleep(_POLL_S)
            try:
                refusal = await _ask(client, url, model, max(_FIRST_S, ends - time.monotonic()))
            except httpx.HTTPError as error:
                refusal = f"{type(error).__name__}: {error}"
        if self.exit_code is not None:
            raise self._ended()
        if refusal:
            raise self._failed(f"The server at {url} does not answer questions to {model}: {refusal}")

    async def wait_until_ill(self, url: str, every_s: float, patience_s: float) -> BackendError:
        """Wait until it has ended, or has not been healthy for ``patience_s``; returns what to tell the user."""
        well = time.monotonic()
        async with httpx.AsyncClient(trust_env=False) as client:
            while self.exit_code is None:
                await asyncio.sleep(every_s)
                if await _is_healthy(client, url, _LOOK_S):
                    well = time.monotonic()
                elif self.exit_code is None and time.monotonic() - well > patience_s:
                    return self._failed(f"The server at {url} has not been healthy for {patience_s:g} s.")
        return self._ended()

    async def stop(self) -> None:
        """End the server and its children; returns when they have ended. May be called again."""
        assert self._guard.stdin is not None
        with suppress(OSError):
            self._guard.stdin.close()  # the order to end, before any waiting, which may be cancelled
        await asyncio.to_thread(self._wait)

    def _wait(self) -> None:
        try:
            self._guard.wait(self._grace_s + _MARGIN_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()  # the server then ends by itself
            self._guard.wait()

    def _ended(self) -> BackendError:
        code = self.exit_code or 0
        number = -code if code < 0 else code - guard.SIGNALLED
        how = f"was ended by signal {number}" if number > 0 else f"ended with exit code {code}"
        return self._failed(f"The server has ended: it {how}.")

    def _failed(self, what: str) -> BackendError:
        """What happened, the first error in the log, which may be long before its end, and the end."""
        end = self.last_lines()
        cause = _ERROR.search(self.last_lines(_LINES))
        if cause and cause[0] not in end:
            what = f"{what} It says: {cause[0][:_SHOWN]}\n"
        return BackendError(
            f"{what} Its log is {self.log}, and ends with:\n{end}" if end else f"{what} It wrote no log."
        )


async def _is_healthy(client: httpx.AsyncClient, url: str, seconds: float) -> bool:
    with suppress(httpx.HTTPError):
        return (await client.get(url.removesuffix("/v1") + "/health", timeout=seconds)).is_success
    return False


async def _ask(client: httpx.AsyncClient, url: str, model: str, seconds: float) -> str:
    """Sample one token, which another program on the port would refuse. Returns the objection, or an empty text."""
    messages = [{"role": "user", "content": "Ready?"}]
    body = {"model": model, "messages": messages, "max_tokens": 1, "temperature": 0.0}
    response = await client.post(f"{url}/chat/completions", json=body, timeout=seconds)
    # A key that the user's own options require is no objection. A server that fails on this one text (transformers
    # does for invalid tool calls) still counts as ready.
    refused = response.is_client_error and response.status_code not in (401, 403)
    return response.text[:500] if refused else ""


class LocalServer:
    """A server on this machine during the ``async with`` block. It also ends if this process is killed.

    Args:
        model: a folder as `save_pretrained` writes it, with its tokenizer.
        ready_s: how long to wait for its first answer, in seconds.

    Raises:
        BackendError: on entering, if the server does not start; the message has the end of its log.
    """

    def __init__(self, model: Path, *, ready_s: float = 180.0) -> None:
        self._served = Served(local_model(str(model)), "transformers", "cpu")
        self._ready_s = ready_s
        self._running = AsyncExitStack()
        self._process: ServerProcess | None = None
        self.url = ""  # ends with /v1; known once entered
        self.model = self._served.model_id

    @property
    def pid(self) -> int | None:
        """The id of the server's guard process; None if there is none."""
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="rlfactory-judge-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            for left in reversed(range(_TRIES)):
                address = Address(free_port(LOOPBACK))
                made = launch(self._served, address)
                made = replace(made, environment={**made.environment, **_ENVIRONMENT})
                process = ServerProcess(made, folder / "server.log", grace_s=_GRACE_S, scratch=folder)
                stack.push_async_callback(process.stop)
                try:
                    await process.wait_until_ready(address.url, self.model, self._ready_s)
                    break
                except BackendError as error:
                    if not left or not _PORT_TAKEN.search(str(error)):
                        raise
                    await process.stop()
            self.url, self._process, self._running = address.url, process, stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process = None
        await self._running.aclose()
