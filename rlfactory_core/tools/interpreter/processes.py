"""Where interpreter processes come from: a warden, started at the first need and again if it is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping, Sequence

from rlfactory_core.errors import BackendError
from rlfactory_core.tools.interpreter.limits import InterpreterLimits
from rlfactory_core.tools.interpreter.process import Process, connections
from rlfactory_core.tools.interpreter.warden import Warden, clean_up, last_words, settings, start_warden

_log = logging.getLogger(__name__)

_START_S = 60.0  # for a process to be ready, the warden's own start and its preloading included
_STOP_S = 10.0  # for the warden to clean up


class Processes:
    """Starts interpreter processes, each confined as far as this platform lets it be.

    Args:
        preload: modules that are imported once, for all processes.
        readable: files and directories that the code may read, beside Python's own and the system's libraries.
    """

    def __init__(self, limits: InterpreterLimits, preload: Sequence[str], readable: Sequence[str]) -> None:
        self._limits = limits
        self._settings = settings(limits, preload, readable)
        self._warden: Warden | None = None

    async def start(self) -> tuple[Process, Mapping[str, str]]:
        """A process that is ready, and the guards that it has not, with reasons.

        Raises:
            BackendError: it does not start, with the reason.
        """
        try:
            process, descriptors = connections(self._limits.output_bytes)
        except OSError as error:
            raise BackendError(f"code_interpreter: no connection to a new process: {error}") from error
        try:
            try:
                await self._ask_for(descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            missing = await process.ready(_START_S)
        except BaseException:
            process.kill()
            raise
        if missing is None:
            ending = await process.end()
            reason = ending.error or self._last_words() or f"It ended ({ending.status}); are its limits too low?"
            raise BackendError(f"code_interpreter: a process did not start. {reason}")
        return process, missing

    async def close(self) -> None:
        """End the warden and, with it, every process. A later `start` starts a new one."""
        warden, self._warden = self._warden, None
        if warden is None or warden.client != os.getpid():
            return
        warden.connection.close()
        clock = asyncio.get_running_loop().time
        ends = clock() + _STOP_S
        while warden.process.poll() is None:
            if clock() > ends:
                _log.error("the warden of the code interpreters does not end; it is killed")
                warden.process.kill()
                ends += _STOP_S
            await asyncio.sleep(0.002)
        clean_up(warden.folder)

    async def _ask_for(self, descriptors: tuple[int, ...]) -> None:
        while True:
            try:
                socket.send_fds(self._live_warden().connection, [b"n"], descriptors)
                return
            except BlockingIOError:  # many at once; it comes after them
                await asyncio.sleep(0.005)
            except OSError as error:
                raise BackendError(f"code_interpreter: no warden ({error}). {self._last_words()}") from error

    def _live_warden(self) -> Warden:
        warden = self._warden
        if warden is not None and warden.client == os.getpid():
            if warden.process.poll() is None:
                return warden
            _log.warning("the warden of the code interpreters was lost; a new one is started")
            warden.connection.close()
            clean_up(warden.folder)
        self._warden = start_warden(self._settings)
        return self._warden

    def _last_words(self) -> str:
        return "" if self._warden is None else last_words(self._warden)
