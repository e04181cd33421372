"""Start interpreter processes through their fork server."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
from collections.abc import Mapping, Sequence

from rlfactory_core.errors import BackendError
from rlfactory_interpreter.forkserver import forkserver
from rlfactory_interpreter.limits import InterpreterLimits
from rlfactory_interpreter.packages import Reads
from rlfactory_interpreter.process import Process

_START_S = 60.0  # for a process to become ready, including the fork server's start and preloading


class Processes:
    """Starts interpreter processes, each confined as far as this platform allows.

    Args:
        preload: modules that the fork server imports once, for all processes.
    """

    def __init__(self, limits: InterpreterLimits, preload: Sequence[str], reads: Reads) -> None:
        self._limits = limits
        self._make = forkserver(limits, preload, reads)
        self._forkserver = self._make()

    async def start(self) -> tuple[Process, Mapping[str, str]]:
        """A process that is ready, and the guards that it lacks, with reasons.

        Raises:
            BackendError: the process does not start; the message has the reason.
        """
        try:
            process = await self._fork()
        except OSError as error:
            raise BackendError(f"code_interpreter: no new process: {error}. {self._forkserver.log()}") from error
        try:
            missing = await process.ready(_START_S)
        except BaseException:
            process.kill()
            raise
        if missing is None:
            ending = await process.end()
            reason = ending.error or self._forkserver.log() or f"It ended ({ending.status}); are its limits too low?"
            raise BackendError(f"code_interpreter: a process did not start. {reason}")
        return process, missing

    async def close(self) -> None:
        """End the fork server and with it all processes. A later `start` starts a new fork server."""
        ended, self._forkserver = self._forkserver, self._make()
        await asyncio.to_thread(ended.close)

    async def _fork(self) -> Process:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            control, other = socket.socketpair()
            ours.enter_context(control).settimeout(0.0)
            theirs.enter_context(other)
            reading, writing = os.pipe()
            output = ours.enter_context(io.FileIO(reading, "rb"))
            theirs.callback(os.close, writing)
            while True:
                try:
                    lifeline = self._forkserver.fork(other.fileno(), writing)
                except BlockingIOError:  # many requests at once: retry
                    await asyncio.sleep(0.005)
                else:
                    ours.pop_all()
                    return Process(control, output, lifeline, self._limits.output_bytes)
