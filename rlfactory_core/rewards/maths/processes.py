"""Asks processes that run `worker` whether two answers are the same."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import rlfactory_core
from rlfactory_core.errors import VerifierError

_BOOT = "import sys; sys.path.insert(0, {path!r}); from rlfactory_core.rewards.maths.worker import main; main()"
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # others may hold secrets
_WALL_S = 45.0  # for an answer on a busy machine, the start of the process included; its CPU time ends it before


@dataclass(frozen=True, slots=True)
class Compared:
    """What a process finds out about an answer."""

    same: bool
    why: str = ""  # the answer could not be compared


class Comparers:
    """At most ``processes`` processes, each started when it is needed, and for one comparison at a time.

    Args:
        processes: their number.
        cpu_s: seconds of CPU time for one comparison.
    """

    def __init__(self, processes: int, cpu_s: int) -> None:
        self._cpu_s = cpu_s
        self._free = asyncio.Semaphore(processes)
        self._idle: list[Process] = []

    async def compare(self, golds: Sequence[str], answer: str) -> Compared:
        """Whether an answer is one of the golds.

        Raises:
            VerifierError: no process answers; the answer is not to blame.
        """
        asked = json.dumps({"golds": list(golds), "answer": answer}).encode() + b"\n"
        async with self._free:
            for _ in range(2):  # a process may have been killed from outside
                process = self._idle.pop() if self._idle else await self._start()
                line = b""
                try:
                    with suppress(TimeoutError, ConnectionError):
                        line = await asyncio.wait_for(_answer(process, asked), _WALL_S)
                finally:
                    if line:
                        self._idle.append(process)
                    else:
                        await _end(process)
                if line:
                    found = json.loads(line)
                    return Compared(found["same"], found.get("error", ""))
                if process.returncode == -signal.SIGXCPU:
                    return Compared(same=False, why="it takes too long to compare the answer")
        raise VerifierError("math: no process compares the answer, although two were asked. Is the memory full?")

    async def close(self) -> None:
        """End all processes."""
        while self._idle:
            await _end(self._idle.pop())

    async def _start(self) -> Process:
        boot = _BOOT.format(path=str(Path(rlfactory_core.__file__).parents[1]))
        environment = {**_ENVIRONMENT, **{name: os.environ[name] for name in _INHERITED if name in os.environ}}
        options = ("-s", "-X", "utf8", "-c", boot, str(self._cpu_s))
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *options), stdin=PIPE, stdout=PIPE, env=environment, start_new_session=True
        )


async def _answer(process: Process, asked: bytes) -> bytes:
    """The line that a process answers; empty if it has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(asked)
    await process.stdin.drain()
    line = await process.stdout.readline()
    return line if line.endswith(b"\n") else b""


async def _end(process: Process) -> None:
    # Not `Process.kill`: it takes the status of a process that has just ended, and asyncio then reports 255.
    with suppress(ProcessLookupError):
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
    await process.wait()
