"""One interpreter process as the client sees it: start it, run code in it, end it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from rlfactory_sandbox import Ending, ForkServer, Process
from rlfactory_sandbox.supervisor import pack

from rlfactory_core.errors import BackendError
from rlfactory_interpreter.output import Output
from rlfactory_interpreter.sandbox.cells import reply

_AT_ONCE = 64 * 1024  # bytes of messages that are read
_START_S = 60.0  # for a process to become ready, including the fork server's start and preloading


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a call: ``text`` is its output."""

    text: str
    failed: bool = False  # the code raised; the text ends with its traceback
    in_time: bool = True  # False: it is still running
    alive: bool = True  # False: the process has ended, or the code wrote or took a reply


class Interpreter:
    """A process that runs code, and is paused between calls."""

    def __init__(self, process: Process, output: Output, missing: Mapping[str, str]) -> None:
        self.missing = missing  # guards that it lacks, with reasons
        self._process, self._output = process, output
        self._calls = 0

    @classmethod
    async def start(cls, server: ForkServer, output_bytes: int) -> Interpreter:
        """Start a process that is confined as far as this platform allows; returns when it is ready.

        Raises:
            BackendError: the process does not start; the message has the reason.
        """
        reading, writing = os.pipe()
        with contextlib.ExitStack() as opened:
            output = Output(opened.enter_context(io.FileIO(reading, "rb")), output_bytes)
            try:
                process = await Process.start(server, writing)
            except OSError as error:
                raise BackendError(f"code_interpreter: no new process: {error}. {server.log()}") from error
            finally:
                os.close(writing)
            try:
                async with asyncio.timeout(_START_S):
                    await process.stopped()
                missing = json.loads(process.connection.recv(_AT_ONCE))["missing"]
            except (TimeoutError, OSError, ValueError) as error:  # it has ended before it was ready
                ending = await process.end()
                reason = ending.error or server.log() or f"It ended ({ending.status}); are its limits too low?"
                raise BackendError(f"code_interpreter: a process did not start. {reason}") from error
            except BaseException:
                process.kill()
                raise
            opened.pop_all()
        return cls(process, output, missing)

    @property
    def killed(self) -> bool:
        """Whether it was killed from here."""
        return self._process.killed

    async def call(self, code: str, seconds: float) -> Reply:
        """Run code; the process stops itself afterwards."""
        self._calls += 1
        self._output.listen()
        try:
            self._process.resume()
            async with asyncio.timeout(seconds):
                with contextlib.suppress(OSError):  # it has ended, as the fork server tells
                    request = pack({"call": self._calls, "code": code})
                    await asyncio.get_running_loop().sock_sendall(self._process.connection, request)
                stopped = await self._process.stopped()
        except TimeoutError:
            return Reply(self._output.take(), in_time=False)
        finally:
            self._output.pause()
        failed = self._failed() if stopped else None
        return Reply(self._output.take(), failed=bool(failed), alive=failed is not None)

    def kill(self) -> None:
        """Kill the process at once; `end` waits for its end."""
        self._process.kill()

    async def end(self, grace_s: float = 0.0) -> Ending:
        """Kill the process if it has not ended after ``grace_s``; returns when it and its folder are gone."""
        ending = await self._process.end(grace_s)
        self._output.close()
        return ending

    def _failed(self) -> bool | None:
        """Whether the call of the stopped process raised; None if the code has written or taken a reply."""
        try:
            data = self._process.connection.recv(_AT_ONCE)
        except OSError:
            return None
        return {reply(self._calls, failed=failed): failed for failed in (False, True)}.get(data)
