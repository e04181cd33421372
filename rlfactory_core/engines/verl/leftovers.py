"""What a run of many processes may leave behind, and its removal.

Ray ends its own processes, but those that they started in turn (vLLM's engine cores) may outlive them, and shared
memory outlives whoever is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Linux's own
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What was there before: processes below this one, and files in shared memory."""

    processes: frozenset[int]
    files: frozenset[str]

    @classmethod
    def watch(cls) -> Leftovers:
        """From now on orphans among our descendants become our children, so that `clear` finds them."""
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        return cls(frozenset(process.pid for process in _descendants()), frozenset(_files()))

    def clear(self) -> None:
        """End what has been started since, politely at first, and remove its shared memory."""
        started = [process for process in _descendants() if process.pid not in self.processes]
        for process in started:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGTERM)
        _, stubborn = psutil.wait_procs(started, GRACE_S)
        for process in [*stubborn, *(p for p in _descendants() if p.pid not in self.processes)]:
            with suppress(psutil.Error):
                process.kill()
        _reap(self.processes)
        for name in _files() - self.files - _mapped():
            with suppress(OSError):
                (SHARED_MEMORY / name).unlink()


def _descendants() -> list[psutil.Process]:
    return list(psutil.Process().children(recursive=True))


def _reap(before: frozenset[int]) -> None:
    """Adopted children that have ended stay as zombies until they are waited for."""
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        left = [process for process in _descendants() if process.pid not in before]
        if not left:
            return
        for process in left:
            with suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
        time.sleep(0.05)


def _files() -> set[str]:
    """This user's, because others' come and go."""
    if not SHARED_MEMORY.is_dir():
        return set()
    found = set()
    for path in SHARED_MEMORY.iterdir():
        with suppress(OSError):
            if path.is_file() and path.stat().st_uid == os.getuid():
                found.add(path.name)
    return found


def _mapped() -> set[str]:
    """Files in shared memory that some living process still uses."""
    used: set[str] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
                _, found, name = line.partition(f"{SHARED_MEMORY}/")
                if found:
                    used.add(name)
            for link in Path(f"/proc/{process.pid}/fd").iterdir():
                target = os.readlink(link)
                if target.startswith(f"{SHARED_MEMORY}/"):
                    used.add(target.removeprefix(f"{SHARED_MEMORY}/"))
    return used
