"""What a run takes of its machine, for the metrics of a step: cores, memory, and the GPU of this process.

It reads ``/proc``, so that no package is needed; elsewhere than on Linux only the GPU is known.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVERY_S = 1.0  # between two measurements: Linux counts processor time in steps of 10 ms
_FAMILY_S = 10.0  # between two looks for new child processes, which read a file of every process of the machine
_GIB = 2**30
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    cpu_s: float  # with its ended children
    memory: int  # resident bytes

    @classmethod
    def of(cls, pid: int) -> _Process | None:
        """None if it has ended."""
        try:
            fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        cpu_s = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        return cls(int(fields[1]), cpu_s, int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))


class MachineUse:
    """Measures a process with its descendants, from one call of `numbers` to the next."""

    def __init__(self) -> None:
        self._family: list[int] = []
        self._looked = float("-inf")
        self._told = False
        self._at, (self._cpu_s, _) = time.monotonic(), self._processes()

    def numbers(self) -> dict[str, float]:
        """The metrics ``machine/…``; empty within `EVERY_S` of the last that were not.

        ``cpu_cores`` is a mean since then, ``memory_gib`` counts what processes share once for each,
        ``gpu_memory_gib`` is torch's peak so far, ``gpu_use`` in [0, 1] needs the package nvidia-ml-py.
        """
        now = time.monotonic()
        passed = now - self._at
        if self._told and passed < EVERY_S:
            return {}
        cpu_s, memory = self._processes()
        found = dict(_gpu())
        if memory:
            cores = max(0.0, cpu_s - self._cpu_s) / max(passed, 1e-3)
            found |= {"cpu_cores": cores, "memory_gib": memory / _GIB}
        self._at, self._cpu_s, self._told = now, cpu_s, True
        return {f"machine/{name}": value for name, value in found.items()}

    def _processes(self) -> tuple[float, int]:
        """Seconds of processor time so far, and bytes."""
        if time.monotonic() - self._looked >= _FAMILY_S:
            self._family, self._looked = list(_family(os.getpid())), time.monotonic()
        live = [process for pid in self._family if (process := _Process.of(pid)) is not None]
        return sum(process.cpu_s for process in live), sum(process.memory for process in live)


def _family(root: int) -> Iterator[int]:
    """A process and its descendants."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for pid in (int(path.name) for path in _PROC.glob("[0-9]*")):
        if (process := _Process.of(pid)) is not None:
            children[process.parent].append(pid)
    found = [root]
    for pid in found:
        found += children[pid]
    return iter(found)


def _gpu() -> Iterator[tuple[str, float]]:
    """Of the device that this process computes on, if it does; torch is not imported for it."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    yield "gpu_memory_gib", torch.cuda.max_memory_allocated() / _GIB
    with suppress(Exception):  # nvidia-ml-py is not installed, or its library cannot tell of this device
        yield "gpu_use", torch.cuda.utilization() / 100
