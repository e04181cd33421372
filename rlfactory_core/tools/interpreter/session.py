"""A trajectory's interpreter: one call after the other, and a new process where the last one did not survive."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

from rlfactory_core.errors import BackendError, ToolError
from rlfactory_core.tools.interpreter.limits import InterpreterLimits
from rlfactory_core.tools.interpreter.process import Ending, Process
from rlfactory_core.tools.interpreter.sandbox.wire import BROKEN

_GRACE_S = 1.0  # for a process that hung up to be gone: how it ended is told apart from being killed here
_LOST = "All variables and files are lost; the next call begins anew."


class Session:
    """Args: start: gives a new process. patience_s: how long a call waits for those before it."""

    def __init__(self, start: Callable[[], Awaitable[Process]], limits: InterpreterLimits, patience_s: float) -> None:
        self._start = start
        self._limits = limits
        self._patience_s = patience_s
        self._process: Process | None = None
        self._given_up: list[Process] = []
        self._closed = False
        self._last: asyncio.Future[None] | None = None  # done when the call that came last is over

    async def run(self, code: str) -> str:
        """What the code prints, and the value of a last expression. Calls run in the order in which they came.

        Raises:
            ToolError: the code raised, or did not keep to a limit; the text tells the model.
            BackendError: there is no process to be had, for no fault of the code's.
        """
        before, over = self._last, asyncio.get_running_loop().create_future()
        self._last = over
        try:
            if before is not None:
                await asyncio.wait((before,), timeout=self._patience_s)
                if not before.done():
                    raise ToolError("the code was not run: the calls before it took too long.")
            return await self._run(code)
        finally:
            if before is None or before.done():
                over.set_result(None)
            else:  # given up while others are at work: who comes next waits for those
                before.add_done_callback(lambda _: over.set_result(None))

    async def close(self) -> None:
        """Returns once nothing is left of it."""
        self._closed = True
        if self._process is not None:
            self._give_up(self._process)
        for process in self._given_up:
            await process.end()
        self._given_up.clear()

    async def _run(self, code: str) -> str:
        if self._process is None:
            self._process = await self._start()
        process = self._process
        if self._closed:  # while the process started
            self._give_up(process)
            raise BackendError("code_interpreter: the trajectory is over.")
        try:
            reply = await process.call(code, self._limits.seconds)
        except asyncio.CancelledError:
            self._give_up(process)
            raise
        if reply.alive and reply.in_time:
            if reply.failed:
                raise ToolError(f"the code raised an exception.\n{reply.text}")
            return reply.text or "(no output)"
        self._let_go(process)
        ending = await process.end(0.0 if reply.alive else _GRACE_S)
        if not reply.in_time:
            reason = f"the code ran for longer than {self._limits.seconds:g} s and was stopped."
        elif ending.status is None:
            raise BackendError(f"code_interpreter: a process was lost. {ending.error}")
        else:
            reason = self._reason(ending, ending.status)
        raise ToolError("\n".join(filter(None, (f"{reason} {_LOST}", reply.text))))

    def _give_up(self, process: Process) -> None:
        process.kill()
        self._let_go(process)

    def _let_go(self, process: Process) -> None:
        self._process = None
        self._given_up.append(process)

    def _reason(self, ending: Ending, status: int) -> str:
        limits = self._limits
        if ending.ended_for == "scratch":
            return (
                f"the code left more than {limits.scratch_mb:g} MB or {limits.scratch_entries} files in its directory "
                "and was stopped."
            )
        if ending.ended_for == "threads":
            return f"the code started more than {limits.threads} threads and was stopped."
        if ending.killed or status == BROKEN:
            return "the code cut the interpreter's connections."
        if status == -signal.SIGXCPU:
            return f"the code used up its {limits.cpu_s:g} s of processor time and was stopped."
        if status == -signal.SIGKILL:
            return "the code was killed, probably because it took too much memory."
        if status < 0:
            return f"the code crashed the interpreter ({signal.strsignal(-status)})."
        return f"the code ended the interpreter (exit status {status})."
