"""Asks the processes of `worker` whether two answers are the same."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rlfactory_core
from rlfactory_core.errors import VerifierError
from rlfactory_core.workers.forkserver import ForkServer
from rlfactory_core.workers.supervisor import pack

_BOOT = "import sys; sys.path.insert(0, {path!r}); from rlfactory_core.rewards.maths.worker import main; main()"
_MEMORY = 2 << 30  # bytes of address space of one process
_AT_ONCE = 1 << 16  # bytes
_WALL_S = 45.0  # for an answer on a busy machine; its CPU time ends it before


@dataclass(frozen=True, slots=True)
class Compared:
    """What a process says of an answer."""

    same: bool
    why: str = ""  # the answer could not be compared


class Comparers:
    """At most ``processes`` processes, started when they are needed, each for one comparison at a time.

    Args:
        processes: their number.
        cpu_s: seconds of CPU time for one comparison.
    """

    def __init__(self, processes: int, cpu_s: int) -> None:
        arguments = ("-s", "-X", "utf8", "-c", _BOOT.format(path=str(Path(rlfactory_core.__file__).parents[1])))
        limits = json.dumps({"memory": _MEMORY, "cpu_s": cpu_s})
        self._server = ForkServer("math", (*arguments, limits), {"OMP_NUM_THREADS": "1"})
        self._free = asyncio.Semaphore(processes)
        self._idle: list[_Worker] = []

    async def compare(self, golds: Sequence[str], answer: str) -> Compared:
        """Whether an answer is one of the golds.

        Raises:
            VerifierError: no process answers; the answer is not to blame.
        """
        async with self._free:
            said: dict[str, Any] | None = None
            for _ in range(2):  # a process may have been killed from outside
                worker = self._idle.pop() if self._idle else _Worker(self._server)
                try:
                    said = await asyncio.wait_for(worker.ask({"golds": list(golds), "answer": answer}), _WALL_S)
                except TimeoutError:
                    pass
                finally:
                    if said is None or "late" in said:
                        worker.close()
                    else:
                        self._idle.append(worker)
                if said is not None:
                    break
        if said is None:
            raise VerifierError(f"math: no process compares the answer. {self._server.log()}")
        if "late" in said:
            return Compared(same=False, why="it takes too long to compare the answer")
        return Compared(said["same"], said.get("error", ""))

    async def close(self) -> None:
        """End all processes."""
        for worker in self._idle:
            worker.close()
        self._idle.clear()
        await asyncio.to_thread(self._server.close)


class _Worker:
    """One process, and the connections to it."""

    def __init__(self, server: ForkServer) -> None:
        self._connection, other = socket.socketpair()
        with other:
            self._lifeline = server.fork(other.fileno())
        self._connection.settimeout(0.0)

    async def ask(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """The process's answer; ``late`` if the kernel has ended it for its time; None if it has ended otherwise."""
        loop, came = asyncio.get_running_loop(), bytearray()
        with contextlib.suppress(OSError):
            await loop.sock_sendall(self._connection, pack(question))
            while not came.endswith(b"\n") and (more := await loop.sock_recv(self._connection, _AT_ONCE)):
                came += more
        return json.loads(came) if came else self._ending(await loop.sock_recv(self._lifeline, _AT_ONCE))

    def close(self) -> None:
        """End the process."""
        self._lifeline.close()
        self._connection.close()

    def _ending(self, told: bytes) -> dict[str, Any] | None:
        is_late = bool(told) and json.loads(told.splitlines()[-1]).get("exit") == -signal.SIGXCPU
        return {"late": True} if is_late else None
