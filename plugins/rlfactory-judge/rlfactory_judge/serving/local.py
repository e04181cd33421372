"""One server for a small model on the CPU, beside a run or a test."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rlfactory_core.errors import BackendError
from rlfactory_judge.serving.process import ServerProcess
from rlfactory_judge.serving.servers import (
    LOOPBACK,
    Address,
    Served,
    choose_backend,
    free_port,
    launch,
    local_model,
)

if TYPE_CHECKING:
    from typing import Self

_TRIES = 3  # in case another program takes the port before the server does
_PORT_TAKEN = re.compile(r"address already in use|errno 98\b|port \d+ is already in use", re.IGNORECASE)
_GRACE_S = 3.0  # the server has no state to save
# Beside training on a CPU: one thread, and nothing from the network.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


class LocalServer:
    """A server on this machine during the ``async with`` block. It also ends if this process is killed.

    Args:
        model: a folder as `save_pretrained` writes it, with its tokenizer.
        ready_s: how long to wait for its first answer, in seconds.

    Raises:
        BackendError: on entering, if the server does not start; the message has the end of its log.
    """

    def __init__(self, model: Path, *, ready_s: float = 180.0) -> None:
        self._served = Served(local_model(str(model)), choose_backend("transformers", "cpu"), "cpu")
        self._ready_s = ready_s
        self._folder: Path | None = None
        self._process: ServerProcess | None = None
        self.url = ""  # ends with /v1; known once entered
        self.model = self._served.model_id

    @property
    def pid(self) -> int | None:
        """The id of the server's guard process; None if there is none."""
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="rlfactory-judge-"))
        try:
            for left in reversed(range(_TRIES)):
                address = Address(free_port(LOOPBACK))
                made = launch(self._served, address)
                made = replace(made, environment={**made.environment, **_ENVIRONMENT})
                log = self._folder / "server.log"
                self._process = ServerProcess(made, log, grace_s=_GRACE_S, scratch=self._folder)
                try:
                    await self._process.wait_until_ready(address.url, self.model, self._ready_s)
                    break
                except BackendError as error:
                    if not left or not _PORT_TAKEN.search(str(error)):
                        raise
                    await self._process.stop()
        except BaseException:
            await self._close()
            raise
        self.url = address.url
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        process, self._process = self._process, None
        try:
            if process is not None:
                await process.stop()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None
