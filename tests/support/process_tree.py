"""Which processes a process has started, and which sockets and pipes it holds, from Linux's ``/proc``."""

from __future__ import annotations

import os
import time
from pathlib import Path


def children(pid: int | None = None) -> set[int]:
    """The own children of a process, by default of this one; those that nobody has waited for included."""
    found: set[int] = set()
    for file in Path(f"/proc/{os.getpid() if pid is None else pid}/task").glob("*/children"):
        try:
            found |= set(map(int, file.read_text().split()))
        except (FileNotFoundError, ProcessLookupError):
            continue  # that thread has ended
    return found


def descendants(pid: int) -> set[int]:
    """Of a process, itself included."""
    return {pid}.union(*map(descendants, children(pid)))


def state(pid: int) -> str:
    """R runs, S sleeps, T stands still, Z is a zombie; see proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_running(pid: int) -> bool:
    """Whether a process has not ended; a zombie has."""
    try:
        os.kill(pid, 0)
        return state(pid) != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # it ended just now, or this system has no /proc
        return not Path("/proc/self").exists()


def is_gone(pid: int) -> bool:
    """Whether a process ends within some seconds; a zombie has."""
    for _ in range(1000):
        if not is_running(pid):
            return True
        time.sleep(0.01)
    return False


def sockets_and_pipes() -> list[str]:
    """Those that this process holds."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.append(os.readlink(link))
        except OSError:
            continue  # that of the listing itself
    return sorted(each for each in found if each.startswith(("socket:", "pipe:")))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
