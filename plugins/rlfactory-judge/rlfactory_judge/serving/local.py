"""One server for a small model on the CPU, beside a run or a test."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rlfactory_judge.serving.hints import port_taken
from rlfactory_judge.serving.machine import free_ports
from rlfactory_judge.serving.process import ServerProcess
from rlfactory_judge.serving.readiness import EndedError, wait_until_ready
from rlfactory_judge.serving.servers import (
    LOOPBACK,
    Backend,
    Launch,
    Replica,
    Served,
    choose_backend,
    local_model,
    small_launch,
)

if TYPE_CHECKING:
    from typing import Self

_TRIES = 3  # in case another program takes the port before the server does
_GRACE_S = 3.0  # the server has no state to save


class LocalServer:
    """A server on this machine during the ``async with`` block. It also ends if this process is killed.

    Args:
        model: a folder as `save_pretrained` writes it, with its tokenizer.
        backend: the program; vLLM takes half a minute to start.
        extra: options of that program, such as ``("--continuous-batching",)``.
        ready_s: how long to wait for its first answer, in seconds.

    Raises:
        BackendError: on entering, if the server does not start; the message has the end of its log.
    """

    def __init__(
        self, model: Path, *, backend: Backend = "transformers", extra: tuple[str, ...] = (), ready_s: float = 180.0
    ) -> None:
        self._served = Served(local_model(str(model)), choose_backend(backend, "cpu"), "cpu", extra=extra)
        self._ready_s = ready_s
        self._folder: Path | None = None
        self._process: ServerProcess | None = None
        self.url = ""  # ends with /v1; known once entered
        self.model = self._served.model_id

    @property
    def pid(self) -> int | None:
        """The id of the server's guard process; None if there is none."""
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> str:
        """The end of what the server has written."""
        return "" if self._process is None else self._process.last_lines(100)

    async def __aenter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="rlfactory-judge-"))
        try:
            for attempt in range(1, _TRIES + 1):
                (port,) = free_ports(LOOPBACK, 1)
                replica = Replica(port)
                try:
                    await self._start(small_launch(self._served, replica), replica.url)
                    return self
                except EndedError as error:
                    if attempt == _TRIES or not port_taken(error.words):
                        raise
                    await self._stop()
        except BaseException:
            await self._close()
            raise
        raise AssertionError("the last attempt returns or raises")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()

    async def _start(self, launch: Launch, url: str) -> None:
        assert self._folder is not None
        log = self._folder / "server.log"
        self._process = ServerProcess(launch.command, launch.environment, log, grace_s=_GRACE_S, scratch=self._folder)
        await wait_until_ready(self._process, url, self.model, self._ready_s)
        self.url = url

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(process.stop)

    async def _close(self) -> None:
        """Stop the process even if this task is cancelled again: the request to end comes before any waiting."""
        process = self._process
        if process is not None:
            process.request_stop()
        try:
            await self._stop()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None
