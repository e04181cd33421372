"""One interpreter process as the client sees it: start it, run code in it, end it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
from dataclasses import dataclass
from typing import Any

from rlfactory_core.workers.lines import LineReader
from rlfactory_core.workers.supervisor import pack
from rlfactory_interpreter.output import Output
from rlfactory_interpreter.sandbox.cells import reply

_AT_ONCE = 64 * 1024  # bytes of messages that are read
_END_S = 10.0  # for a killed process to end


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a call: ``text`` is its output."""

    text: str
    failed: bool = False  # the code raised; the text ends with its traceback
    in_time: bool = True  # False: it is still running
    alive: bool = True  # False: the process has ended, or the code wrote or took a reply


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended. ``status`` is None if the fork server is lost, or for the reason in ``error``."""

    status: int | None = None  # exit status, or minus the signal's number
    killed: bool = False  # by `Process.kill`
    exceeded: str = ""  # the limit for which the fork server killed it: scratch or threads
    error: str = ""


class Process:
    """The three connections of an interpreter process: control and output, and the lifeline to the fork server.

    `rlfactory_core.workers.supervisor` describes the lifeline.
    """

    def __init__(self, control: socket.socket, output: io.FileIO, lifeline: socket.socket, output_bytes: int) -> None:
        self._control, self._lifeline = control, lifeline
        self._output = Output(output, output_bytes)
        self._killed = False
        self._calls = 0
        self._stops: asyncio.Queue[bool] = asyncio.Queue()  # the fork server's messages; False: the process has ended
        self._exit: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()  # the last one
        self._reader = LineReader(lifeline, _AT_ONCE, self._on_message, lambda _: self._on_exit({}))
        self._ending: asyncio.Task[Ending] | None = None

    async def ready(self, seconds: float) -> dict[str, str] | None:
        """Wait until the process has confined itself.

        Returns the guards that it could not enable, with reasons; None if it does not become ready.
        """
        with contextlib.suppress(TimeoutError, OSError):  # OSError: it has stopped before it was ready
            async with asyncio.timeout(seconds):
                stopped = await self._stops.get()
            return dict(json.loads(self._control.recv(_AT_ONCE))["missing"]) if stopped else None
        return None

    async def call(self, code: str, seconds: float) -> Reply:
        """Run code; the process stops itself afterwards."""
        self._calls += 1
        self._output.listen()
        try:
            self._send_order(b"r")
            async with asyncio.timeout(seconds):
                stopped = await self._exchange(code)
        except TimeoutError:
            return Reply(self._output.take(), in_time=False)
        finally:
            self._output.pause()
        failed = self._failed() if stopped else None
        return Reply(self._output.take(), failed=bool(failed), alive=failed is not None)

    def kill(self) -> None:
        """Kill the process at once; `end` waits for its end."""
        self._killed = True
        with contextlib.suppress(OSError):  # the fork server has closed it
            self._lifeline.shutdown(socket.SHUT_WR)
        self._start_ending()

    async def end(self, grace_s: float = 0.0) -> Ending:
        """Kill the process if it has not ended after ``grace_s``; returns when it and its directory are gone."""
        ending = self._start_ending()
        try:
            if grace_s:
                await asyncio.wait((ending,), timeout=grace_s)
        finally:
            if not ending.done():
                self.kill()
        return await asyncio.shield(ending)

    def _start_ending(self) -> asyncio.Task[Ending]:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        return self._ending

    async def _exchange(self, code: str) -> bool:
        """Whether the process has stopped itself; False if it has ended."""
        with contextlib.suppress(OSError):  # it has ended, as the fork server will tell
            request = pack({"call": self._calls, "code": code})
            await asyncio.get_running_loop().sock_sendall(self._control, request)
        return await self._stops.get()

    def _on_message(self, line: bytes | bytearray) -> None:
        message = json.loads(line)
        if "stopped" in message:
            self._stops.put_nowait(item=True)
        else:
            self._on_exit(message)

    def _on_exit(self, message: dict[str, Any]) -> None:
        if not self._exit.done():
            self._exit.set_result(message)
            self._stops.put_nowait(item=False)

    def _failed(self) -> bool | None:
        """Whether the call of the stopped process raised; None if the code has written or taken a reply."""
        try:
            data = self._control.recv(_AT_ONCE)
        except OSError:
            return None
        return {reply(self._calls, failed=failed): failed for failed in (False, True)}.get(data)

    def _send_order(self, order: bytes) -> None:
        with contextlib.suppress(OSError):  # the fork server has closed it; then the control connection is closed too
            self._lifeline.send(order)

    async def _end(self) -> Ending:
        try:
            async with asyncio.timeout(_END_S):
                message = await self._exit
        except TimeoutError:
            message = {"error": "the fork server does not answer"}
        for connection in (self._control, self._reader, self._output):
            connection.close()
        return Ending(message.get("exit"), self._killed, message.get("ended_for", ""), message.get("error", ""))
