"""A trajectory's interpreter: runs its calls in order, and replaces a process that has ended."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

from rlfactory_sandbox import Ending
from rlfactory_sandbox.supervisor import BROKEN

from rlfactory_core.errors import BackendError, ToolError
from rlfactory_interpreter.limits import InterpreterLimits
from rlfactory_interpreter.process import Interpreter

_GRACE_S = 1.0  # for a process that closed its connection to end by itself, so that its exit status is known
_LOST = "All variables and files are lost; the next call begins anew."


class Session:
    """Runs calls one after the other.

    Args:
        start: starts a new process.
        queue_s: how long a call waits for the calls before it.
    """

    def __init__(self, start: Callable[[], Awaitable[Interpreter]], limits: InterpreterLimits, queue_s: float) -> None:
        self._start = start
        self._limits = limits
        self._queue_s = queue_s
        self._process: Interpreter | None = None  # the last one, if it can go on
        self._started: list[Interpreter] = []
        self._closed = False
        self._turn = asyncio.Lock()

    async def run(self, code: str) -> str:
        """Run code; returns what it prints and the value of its last expression. Calls run in the order of arrival.

        Raises:
            ToolError: the code raised or exceeded a limit; the message is for the model.
            BackendError: no process can be started; that is not the code's fault.
        """
        try:
            await asyncio.wait_for(self._turn.acquire(), self._queue_s)
        except TimeoutError:
            raise ToolError("the code was not run: the calls before it took too long.") from None
        try:
            return await self._run(code)
        finally:
            self._turn.release()

    async def close(self) -> None:
        """End all processes; returns when they are gone."""
        self._closed = True
        for process in self._started:
            process.kill()
        for process in self._started:
            await process.end()

    async def _run(self, code: str) -> str:
        process = self._process
        if process is None:
            process = await self._start()
            self._started.append(process)
        self._process = None
        try:
            if self._closed:  # closed while the process started
                raise BackendError("code_interpreter: the trajectory is over.")
            reply = await process.call(code, self._limits.seconds)
        except BaseException:
            process.kill()
            raise
        if reply.alive and reply.in_time:
            self._process = process
            if reply.failed:
                raise ToolError(f"the code raised an exception.\n{reply.text}")
            return reply.text or "(no output)"
        ending = await process.end(0.0 if reply.alive else _GRACE_S)
        if not reply.in_time:
            reason = f"the code ran for longer than {self._limits.seconds:g} s and was stopped."
        elif ending.status is None:
            raise BackendError(f"code_interpreter: a process was lost. {ending.error}")
        else:
            reason = self._reason(process.killed, ending, ending.status)
        raise ToolError("\n".join(filter(None, (f"{reason} {_LOST}", reply.text))))

    def _reason(self, killed: bool, ending: Ending, status: int) -> str:
        limits = self._limits
        if ending.exceeded == "scratch":
            return (
                f"the code left more than {limits.scratch_mb:g} MB or {limits.scratch_entries} files in its directory "
                "and was stopped."
            )
        if ending.exceeded == "threads":
            return f"the code started more than {limits.threads} threads and was stopped."
        if killed or status == BROKEN:
            return "the code cut the interpreter's connections."
        if status == -signal.SIGXCPU:
            return f"the code used up its {limits.cpu_s:g} s of processor time and was stopped."
        if status == -signal.SIGKILL:
            return "the code was killed, probably because it took too much memory."
        if status < 0:
            return f"the code crashed the interpreter ({signal.strsignal(-status)})."
        return f"the code ended the interpreter (exit status {status})."
