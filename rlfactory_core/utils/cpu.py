"""How many of the machine's cores this process may use, and how many threads may compute."""

from __future__ import annotations

import os

__all__ = ["compute_threads", "usable_cores"]


def usable_cores() -> int:
    """At least 1; respects the limit of a container or of taskset, if the system reports it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compute_threads() -> int:
    """For a process that computes alone: OMP_NUM_THREADS, if the user has set it, or else all usable cores."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) else usable_cores()
