"""How much memory this process may use, of the machine's and of its container's."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

__all__ = ["free_memory", "return_memory"]

_CGROUPS = Path("/sys/fs/cgroup")


def free_memory(cgroups: Path = _CGROUPS, memberships: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes that this process has or can still get, within the limits of its control groups (of Linux, version 2 or 1).

    What files have left in the cache counts as free.
    """
    own: int = psutil.Process().memory_info().rss
    free: int = psutil.virtual_memory().available
    return own + min([free, *_left(cgroups, memberships)])


def _left(cgroups: Path, memberships: Path) -> Iterator[int]:
    """What the limit of each group that this process is in leaves, from the innermost to the outermost."""
    with suppress(OSError):
        for line in memberships.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            root = cgroups / controllers
            group = root / path.lstrip("/")
            for folder in (group, *group.parents):
                with suppress(OSError, ValueError):  # no such group, or no limit: "max"
                    yield _left_in(folder, second=not controllers)
                if folder == root:
                    break


def _left_in(folder: Path, *, second: bool) -> int:
    limit, used, cache = (
        ("memory.max", "memory.current", "inactive_file")
        if second
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    )
    stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines())
    taken = int((folder / used).read_text(encoding="utf-8")) - int(stat.get(cache, 0))
    return max(0, int((folder / limit).read_text(encoding="utf-8")) - taken)


def return_memory() -> None:
    """Give the system back what glibc keeps of freed memory, which many sizes in turn fragment; else does nothing."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
