"""Start interpreter processes through a fork server, which is started when first needed and again if it is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping, Sequence

from rlfactory_core.errors import BackendError
from rlfactory_interpreter.forkserver import ForkServer, log_tail, remove_folder, settings, start_forkserver
from rlfactory_interpreter.limits import InterpreterLimits
from rlfactory_interpreter.packages import Reads
from rlfactory_interpreter.process import Process, connections

_log = logging.getLogger(__name__)

_START_S = 60.0  # for a process to become ready, including the fork server's start and preloading
_STOP_S = 10.0  # for the fork server to clean up


class Processes:
    """Starts interpreter processes, each confined as far as this platform allows.

    Args:
        preload: modules that the fork server imports once, for all processes.
    """

    def __init__(self, limits: InterpreterLimits, preload: Sequence[str], reads: Reads) -> None:
        self._limits = limits
        self._settings = settings(limits, preload, reads)
        self._forkserver: ForkServer | None = None

    async def start(self) -> tuple[Process, Mapping[str, str]]:
        """A process that is ready, and the guards that it lacks, with reasons.

        Raises:
            BackendError: the process does not start; the message has the reason.
        """
        try:
            process, descriptors = connections(self._limits.output_bytes)
        except OSError as error:
            raise BackendError(f"code_interpreter: no connection to a new process: {error}") from error
        try:
            try:
                await self._request(descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            missing = await process.ready(_START_S)
        except BaseException:
            process.kill()
            raise
        if missing is None:
            ending = await process.end()
            reason = ending.error or self._log_tail() or f"It ended ({ending.status}); are its limits too low?"
            raise BackendError(f"code_interpreter: a process did not start. {reason}")
        return process, missing

    async def close(self) -> None:
        """End the fork server and with it all processes. A later `start` starts a new fork server."""
        forkserver, self._forkserver = self._forkserver, None
        if forkserver is None or forkserver.client != os.getpid():
            return
        forkserver.connection.close()
        clock = asyncio.get_running_loop().time
        ends = clock() + _STOP_S
        while forkserver.process.poll() is None:
            if clock() > ends:
                _log.error("the fork server of the code interpreters does not end, so it is killed")
                forkserver.process.kill()
                ends += _STOP_S
            await asyncio.sleep(0.002)
        remove_folder(forkserver.folder)

    async def _request(self, descriptors: tuple[int, ...]) -> None:
        while True:
            try:
                socket.send_fds(self._live_forkserver().connection, [b"n"], descriptors)
                return
            except BlockingIOError:  # many requests at once: retry
                await asyncio.sleep(0.005)
            except OSError as error:
                raise BackendError(f"code_interpreter: no fork server ({error}). {self._log_tail()}") from error

    def _live_forkserver(self) -> ForkServer:
        forkserver = self._forkserver
        if forkserver is not None and forkserver.client == os.getpid():
            if forkserver.process.poll() is None:
                return forkserver
            _log.warning("the fork server of the code interpreters was lost; a new one is started")
            forkserver.connection.close()
            remove_folder(forkserver.folder)
        self._forkserver = start_forkserver(self._settings)
        return self._forkserver

    def _log_tail(self) -> str:
        return "" if self._forkserver is None else log_tail(self._forkserver)
