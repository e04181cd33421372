"""One process of a fork server, as the client sees it. `supervisor` describes the lifeline."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from dataclasses import dataclass

from .forkserver import ForkServer

_AT_ONCE = 1 << 16  # bytes
_RETRY_S = 0.005  # before the fork server is asked again, which has too many requests
_END_S = 10.0  # for a killed process to end


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended."""

    status: int | None = None  # exit status, or minus the signal's number; None: the fork server was lost, or `error`
    exceeded: str = ""  # the limit for which the fork server ended it
    error: str = ""


class Process:
    """A connection to the process, and the lifeline.

    Attributes:
        connection: to the process's first descriptor; non-blocking.
        killed: the client has killed it.
    """

    def __init__(self, connection: socket.socket, lifeline: socket.socket) -> None:
        self.connection, self._lifeline = connection, lifeline
        self.killed = False
        self._stops: asyncio.Queue[bool] = asyncio.Queue()  # False: the process has ended
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Task[Ending] | None = None  # a process that nobody waits for has no task

    @classmethod
    async def start(cls, server: ForkServer, *descriptors: int) -> Process:
        """Fork a process with a connection and further descriptors, which this process can close afterwards.

        Raises:
            OSError: the fork server cannot be started.
        """
        connection, other = socket.socketpair()
        connection.settimeout(0.0)
        with other, contextlib.ExitStack() as opened:
            opened.enter_context(connection)
            while True:
                try:
                    lifeline = server.fork(other.fileno(), *descriptors)
                except BlockingIOError:
                    await asyncio.sleep(_RETRY_S)
                else:
                    opened.pop_all()
                    return cls(connection, lifeline)

    async def stopped(self) -> bool:
        """Wait until the process stops itself; False if it has ended."""
        self._ended()
        return await self._stops.get()

    def resume(self) -> None:
        """Let a stopped process run, with the checks of the fork server."""
        with contextlib.suppress(OSError):  # it has ended
            self._lifeline.send(b"r")

    def kill(self) -> None:
        """End the process at once; `end` waits until it has."""
        self.killed = True
        with contextlib.suppress(OSError):  # it has ended
            self._lifeline.shutdown(socket.SHUT_WR)
        self._ended()  # closes the lifeline

    def drop(self) -> None:
        """Close what this process has of it, without waiting: it is a fork's parent's, or its event loop has ended."""
        self.connection.close()
        self._lifeline.close()

    async def end(self, grace_s: float = 0.0) -> Ending:
        """Kill the process if it has not ended after ``grace_s``; returns when it and its folder are gone."""
        ending = self._ended()
        try:
            if grace_s:
                await asyncio.wait((ending,), timeout=grace_s)
        finally:
            if not ending.done():
                self.kill()
        await asyncio.wait((ending,), timeout=_END_S)
        self.connection.close()
        return ending.result() if ending.done() else Ending(error="the fork server does not answer")

    def _ended(self) -> asyncio.Task[Ending]:
        if self._ending is None:
            self._ending = self._loop.create_task(self._read())
        return self._ending

    async def _read(self) -> Ending:
        """Read the fork server's messages until the last, which says how the process ended."""
        ending, came = Ending(), b""
        with self._lifeline, contextlib.suppress(OSError):
            while more := await asyncio.get_running_loop().sock_recv(self._lifeline, _AT_ONCE):
                *lines, came = (came + more).split(b"\n")
                for message in map(json.loads, lines):
                    if "stopped" in message:
                        self._stops.put_nowait(item=True)
                    else:
                        ending = Ending(message.get("exit"), message.get("ended_for", ""), message.get("error", ""))
        self._stops.put_nowait(item=False)
        return ending
