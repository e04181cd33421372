"""One interpreter process, as seen from here: start, calls, end."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import socket
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from rlfactory_core.tools.interpreter.output import Output
from rlfactory_core.tools.interpreter.sandbox.wire import HEAD, pack

Came = TypeVar("Came")

_MAX_MESSAGE = 64 * 1024  # the model's code can write on the connection too
_END_S = 10.0  # for a killed process to be gone


@dataclass(frozen=True, slots=True)
class Reply:
    """How a call went: ``text`` is what came out of it."""

    text: str
    failed: bool = False  # the code raised; the text ends with its traceback
    in_time: bool = True  # else it is still running
    alive: bool = True  # else the process is gone, or does not keep to the protocol any more


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended. Without ``status``, nobody knows: the warden is gone, or ``error`` says why it never was."""

    status: int | None = None  # exit status, or minus the signal's number
    killed: bool = False  # from here
    ended_for: str = ""  # the limit for which the warden has ended it: scratch, threads
    error: str = ""


class Process:
    """The three connections of an interpreter process; see `sandbox.warden` for who is at their other ends."""

    def __init__(self, control: socket.socket, output: io.FileIO, lead: socket.socket, output_bytes: int) -> None:
        self._control, self._lead = control, lead
        self._output = Output(output, output_bytes)
        self._killed = False
        self._ending: asyncio.Task[Ending] | None = None

    async def ready(self, seconds: float) -> dict[str, str] | None:
        """Wait until it has confined itself: guards that it could not put up, with reasons; None if it never will."""
        try:
            message = await _within(_receive(self._control), seconds)
        except asyncio.TimeoutError:
            return None
        return None if message is None else dict(message["missing"])

    async def call(self, code: str, seconds: float) -> Reply:
        """Run code, and let the process stand still afterwards."""
        self._output.listen()
        try:
            self._order(b"r")
            reply = await _within(self._exchange(code), seconds)
        except asyncio.TimeoutError:
            return Reply(self._output.take(), in_time=False)
        finally:
            self._output.pause()
        if reply is None or not isinstance(reply.get("failed"), bool):
            return Reply(self._output.take(), alive=False)
        self._order(b"p")
        return Reply(self._output.take(), failed=reply["failed"])

    def kill(self) -> None:
        """At once; `end` waits for it."""
        self._killed = True
        with contextlib.suppress(OSError):  # the warden has hung up before
            self._lead.shutdown(socket.SHUT_WR)
        self._end_begins()

    async def end(self, grace_s: float = 0.0) -> Ending:
        """Kill it if it lives on after ``grace_s``; returns once the process and its directory are gone."""
        ending = self._end_begins()
        try:
            if grace_s:
                await asyncio.wait((ending,), timeout=grace_s)
        finally:
            if not ending.done():
                self.kill()
        return await asyncio.shield(ending)

    def _end_begins(self) -> asyncio.Task[Ending]:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        return self._ending

    async def _exchange(self, code: str) -> dict[str, Any] | None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._control, pack({"code": code}))
        except OSError:
            return None
        return await _receive(self._control)

    def _order(self, order: bytes) -> None:
        with contextlib.suppress(OSError):  # the warden has hung up: the control connection says so too
            self._lead.send(order)

    async def _end(self) -> Ending:
        try:
            message = await _within(_receive(self._lead), _END_S) or {}
        except asyncio.TimeoutError:
            message = {"error": "the warden does not answer"}
        for connection in (self._control, self._lead, self._output):
            connection.close()
        return Ending(message.get("exit"), self._killed, message.get("ended_for", ""), message.get("error", ""))


async def _within(work: Coroutine[Any, Any, Came], seconds: float) -> Came:
    """As `asyncio.wait_for`, which before Python 3.12 may lose a cancellation that comes together with the result."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,), timeout=seconds)
        if not task.done():
            raise asyncio.TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


async def _receive(connection: socket.socket) -> dict[str, Any] | None:
    """The next message; None where the other side is gone or says something else."""
    head = await _exactly(connection, HEAD.size)
    if head is None or HEAD.unpack(head)[0] > _MAX_MESSAGE:
        return None
    body = await _exactly(connection, HEAD.unpack(head)[0])
    try:
        message = json.loads(body or b"")
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


async def _exactly(connection: socket.socket, size: int) -> bytes | None:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size:
        try:
            piece = await loop.sock_recv(connection, size - len(data))
        except OSError:
            return None
        if not piece:
            return None
        data += piece
    return data


def connections(output_bytes: int) -> tuple[Process, tuple[int, int, int]]:
    """A process to be, and the descriptors of its other side, which the caller sends to the warden and closes.

    Raises:
        OSError: this process may open no more.
    """
    with contextlib.ExitStack() as opened:
        control, its_control = map(opened.enter_context, socket.socketpair())
        lead, its_lead = map(opened.enter_context, socket.socketpair())
        reading, writing = os.pipe()
        output = io.FileIO(reading, "rb")
        for end in (control, lead):
            end.settimeout(0.0)
        opened.pop_all()
    process = Process(control, output, lead, output_bytes)
    return process, (its_control.detach(), writing, its_lead.detach())
