"""How many of the machine's cores this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """At least 1; a container's or taskset's limit counts, where the system tells it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
