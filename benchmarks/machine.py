"""What a benchmark ran on, in a few words for its table."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version


def describe(*packages: str) -> str:
    """``2 cores, 24 GiB, no GPU, Python 3.11, torch 2.13.0, …``; packages that are not installed are left out."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [f"{cores} cores", f"{memory:.0f} GiB", f"Python {platform.python_version()}"]
    for package in ("torch", "transformers", *packages):
        try:
            parts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(parts)
