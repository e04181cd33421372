"""What a run uses of its machine, for the metrics of a step: cores, memory, and the GPU of this process."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any

import psutil

EVERY_S = 1.0  # between two measurements: Linux counts processor time in steps of 10 ms
_GIB = 2**30


class MachineUse:
    """Measures a process with its descendants, from one call of `numbers` to the next."""

    def __init__(self) -> None:
        self._measured = False
        self._at, (self._cpu_s, _) = time.monotonic(), _processes()

    def numbers(self) -> dict[str, float]:
        """The metrics ``machine/…``; empty if the last ones are younger than `EVERY_S`.

        ``cpu_cores`` is a mean since then, ``memory_gib`` counts what processes share once for each,
        ``gpu_memory_gib`` is torch's peak so far, ``gpu_use`` in [0, 1] needs the package nvidia-ml-py.
        """
        now = time.monotonic()
        passed = now - self._at
        if self._measured and passed < EVERY_S:
            return {}
        cpu_s, memory = _processes()
        cores = max(0.0, cpu_s - self._cpu_s) / max(passed, 1e-3)
        self._at, self._cpu_s, self._measured = now, cpu_s, True
        return {"machine/cpu_cores": cores, "machine/memory_gib": memory / _GIB, **_gpu()}


def _processes() -> tuple[float, int]:
    """Seconds of processor time so far, with that of ended children, and resident bytes."""
    cpu_s, memory = 0.0, 0
    for process in (root := psutil.Process(), *root.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended
            times = process.cpu_times()
            cpu_s += times.user + times.system + times.children_user + times.children_system
            memory += process.memory_info().rss
    return cpu_s, memory


def _gpu() -> dict[str, float]:
    """Metrics of the GPU that this process computes on, if any; they do not import torch."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    found = {"machine/gpu_memory_gib": torch.cuda.max_memory_allocated() / _GIB}
    with suppress(Exception):  # nvidia-ml-py is not installed, or its library cannot tell of this device
        found["machine/gpu_use"] = torch.cuda.utilization() / 100
    return found
