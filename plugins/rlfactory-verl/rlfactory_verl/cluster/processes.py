"""The processes of a run and their shared memory: how to find them, and how to end them.

Ray ends its own processes, but not always those that they have started (vLLM's engine cores). Two of Ray's agents
outlive a driver that is killed, and shared memory outlives any killed process. The processes of a run are found by its
folder, where each of them writes its log.
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
GRACE_S = 5.0  # how long a process may take to end by itself


def processes_of(folder: Path) -> list[psutil.Process]:
    """All processes but this one that have a file below the folder open or name the folder on their command line."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and _belongs(process, f"{folder}/"):
                found.append(process)
    return found


def shared_memory_of(processes: Iterable[psutil.Process]) -> set[str]:
    """The names of the files in shared memory that the processes use.

    Files are also matched by inode, because a semaphore is mapped before it gets its final name.
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
    """The names of Python's multiprocessing semaphores; a named one that is not in use has no owner any more."""
    return {path.name for path in SHARED_MEMORY.glob("sem.mp-*")}


def end(processes: list[psutil.Process]) -> None:
    """Terminate the processes, and kill those that do not end."""
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGTERM)
    stubborn = _wait(processes)
    for process in stubborn:
        with suppress(psutil.Error):
            process.kill()
    _wait(stubborn)


def remove_shared_memory(names: set[str]) -> None:
    """Remove the files that no living process uses."""
    for name in names - shared_memory_of(psutil.process_iter()):
        with suppress(OSError):
            (SHARED_MEMORY / name).unlink()


def _wait(processes: list[psutil.Process]) -> list[psutil.Process]:
    """The processes that still run after the grace period. A zombie process counts as ended."""
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
    with suppress(OSError):  # it was removed in the meantime
        return path.lstat().st_ino
    return None


def _open_files(pid: int) -> Iterator[str]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            yield os.readlink(link)
