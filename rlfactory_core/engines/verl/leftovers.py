"""The processes of a run and their shared memory: how to find them, and how to end them.

Ray ends its own processes, but not always those that they started in turn (vLLM's engine cores); two of its agents
outlive a driver that is killed; and shared memory outlives whoever is killed. Everything of a run is known by its
folder: each process of it writes its log there.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Linux's own
GRACE_S = 5.0  # for a process to end by itself


def processes_of(folder: Path) -> list[psutil.Process]:
    """All that have a file below the folder open, or name it on their command line; never this process."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and _belongs(process, f"{folder}/"):
                found.append(process)
    return found


def shared_memory_of(processes: Iterable[psutil.Process]) -> set[str]:
    """The names of the files in shared memory that these use.

    A file is known by its inode, too: a semaphore is mapped while it has another name than it is given then.
    """
    used: set[str] = set()
    inodes: set[int] = set()
    for process in processes:
        with suppress(psutil.Error, OSError):
            for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
                place, found, name = line.partition(f"{SHARED_MEMORY}/")
                if found:
                    used.add(name.removesuffix(" (deleted)"))
                    inodes.add(int(place.split()[4]))
            for target in _open_files(process.pid):
                if target.startswith(f"{SHARED_MEMORY}/"):
                    used.add(target.removeprefix(f"{SHARED_MEMORY}/").removesuffix(" (deleted)"))
    return used | {path.name for path in SHARED_MEMORY.iterdir() if _inode(path) in inodes}


def semaphores() -> set[str]:
    """The names of Python's multiprocessing semaphores; one that is still named but not in use is nobody's."""
    return {path.name for path in SHARED_MEMORY.glob("sem.mp-*")}


def end(processes: list[psutil.Process]) -> None:
    """Politely at first."""
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGTERM)
    stubborn = _wait(processes)
    for process in stubborn:
        with suppress(psutil.Error):
            process.kill()
    _wait(stubborn)


def remove_shared_memory(names: set[str]) -> None:
    """Those that no living process uses any more."""
    for name in names - shared_memory_of(psutil.process_iter()):
        with suppress(OSError):
            (SHARED_MEMORY / name).unlink()


def _wait(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run after the grace; one that only its parent has yet to notice has ended."""
    deadline = time.monotonic() + GRACE_S
    while (left := [process for process in processes if _runs(process)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _belongs(process: psutil.Process, inside: str) -> bool:
    if any(inside in argument or argument == inside[:-1] for argument in process.cmdline()):
        return True
    return any(target.startswith(inside) for target in _open_files(process.pid))


def _inode(path: Path) -> int | None:
    with suppress(OSError):  # it is gone in the meantime
        return path.lstat().st_ino
    return None


def _open_files(pid: int) -> Iterator[str]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            yield os.readlink(link)
