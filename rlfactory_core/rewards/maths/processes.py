"""Asks the processes of `worker` whether two answers are the same."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rlfactory_core
from rlfactory_core.errors import VerifierError
from rlfactory_core.rewards.maths.worker import line

_BOOT = "import sys; sys.path.insert(0, {path!r}); from rlfactory_core.rewards.maths.worker import main; main()"
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # others may hold secrets
_AT_ONCE = 1 << 16  # bytes
_WALL_S = 45.0  # for an answer on a busy machine; its CPU time ends it before


@dataclass(frozen=True, slots=True)
class Compared:
    """What a process finds out about an answer."""

    same: bool
    why: str = ""  # the answer could not be compared


class Comparers:
    """``processes`` processes, started with the first answer, each for one comparison at a time.

    Args:
        processes: their number.
        cpu_s: seconds of CPU time for one comparison.
    """

    def __init__(self, processes: int, cpu_s: int) -> None:
        self._number, self._cpu_s = processes, cpu_s
        self._free = asyncio.Semaphore(processes)
        self._idle: list[socket.socket] = []
        self._parent: subprocess.Popen[bytes] | None = None

    async def compare(self, golds: Sequence[str], answer: str) -> Compared:
        """Whether an answer is one of the golds.

        Raises:
            VerifierError: no process answers; the answer is not to blame.
        """
        asked = line({"golds": list(golds), "answer": answer})
        async with self._free:
            for _ in range(2):  # a process may have been killed from outside
                if self._parent is None or self._parent.poll() is not None or not self._idle:
                    self._start()
                parent, connection = self._parent, self._idle.pop()
                found = None
                try:
                    found = await asyncio.wait_for(_answer(connection, asked), _WALL_S)
                except TimeoutError:
                    pass
                finally:
                    if found is not None and parent is self._parent:
                        self._idle.append(connection)
                    else:
                        connection.close()
                if found and "late" in found:
                    return Compared(same=False, why="it takes too long to compare the answer")
                if found and "same" in found:
                    return Compared(found["same"], found.get("error", ""))
        raise VerifierError("math: no process compares the answer, although two were asked. Is the memory full?")

    async def close(self) -> None:
        """End all processes."""
        self._end()

    def _start(self) -> None:
        self._end()
        boot = _BOOT.format(path=str(Path(rlfactory_core.__file__).parents[1]))
        environment = {**_ENVIRONMENT, **{name: os.environ[name] for name in _INHERITED if name in os.environ}}
        pairs = [socket.socketpair() for _ in range(self._number)]
        theirs = [other.fileno() for _, other in pairs]
        self._parent = subprocess.Popen(  # noqa: S603
            (sys.executable, "-s", "-X", "utf8", "-c", boot, str(self._cpu_s), *map(str, theirs)),
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        for ours, other in pairs:
            ours.settimeout(0.0)
            other.close()
            self._idle.append(ours)

    def _end(self) -> None:
        parent, self._parent = self._parent, None
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        if parent is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)
            parent.wait()


async def _answer(connection: socket.socket, asked: bytes) -> dict[str, Any] | None:
    """What a process answers; None if it has ended."""
    loop, came = asyncio.get_running_loop(), bytearray()
    with contextlib.suppress(OSError):
        await loop.sock_sendall(connection, asked)
        while not came.endswith(b"\n") and (more := await loop.sock_recv(connection, _AT_ONCE)):
            came += more
    return dict(json.loads(came)) if came.endswith(b"\n") else None
