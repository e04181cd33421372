"""Finds resources that this process holds: child processes, threads, open files, and files that it has written."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil

from rlfactory_core.cache import cache_root

_OWN_THREADS = ("rlfactory-bench", "tool-", "asyncio_", "ThreadPoolExecutor", "MainThread")  # loops and pools
_TRACKERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")  # started once, for the process's life


@dataclass(frozen=True, slots=True)
class ResourceSnapshot:
    """The resources at one moment."""

    children: dict[int, str]  # process ids of descendants, with their command lines
    threads: dict[int, str]
    files: frozenset[str]  # open ones
    descriptors: int  # open files, sockets and pipes

    @classmethod
    def now(cls) -> ResourceSnapshot:
        process = psutil.Process()
        threads = {thread.ident or 0: thread.name for thread in threading.enumerate()}
        return cls(
            children={child.pid: _command(child) for child in process.children(recursive=True)},
            threads={number: name for number, name in threads.items() if not name.startswith(_OWN_THREADS)},
            files=frozenset(file.path for file in process.open_files()),
            descriptors=process.num_fds(),
        )

    def left_since(self, before: ResourceSnapshot) -> list[str]:
        """The resources that are new since ``before``, in words."""
        processes = [
            f"process {number} ({words[:80]})"
            for number, words in self.children.items()
            if number not in before.children and not any(tracker in words for tracker in _TRACKERS)
        ]
        threads = [f"thread {name}" for number, name in self.threads.items() if number not in before.threads]
        return [*processes, *threads, *(f"an open file {name}" for name in sorted(self.files - before.files))]


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline()) or "it has ended and nobody has waited for it"
    return "it has ended"


@contextlib.contextmanager
def noted_files() -> Iterator[set[str]]:
    """Yields a set to which the files and folders are added that this process makes."""
    made: set[str] = set()
    listening = True

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        """It must not raise."""
        if not listening or event not in ("open", "os.mkdir", "os.rename", "sqlite3.connect"):
            return
        path = arguments[1 if event == "os.rename" else 0]
        if event == "open" and not int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        if isinstance(path, (str, bytes, os.PathLike)):
            name = os.path.abspath(os.fsdecode(path))
            if event == "os.rename" or not os.path.exists(name):
                made.add(name)

    sys.addaudithook(note)  # it cannot be removed, so it stops listening
    try:
        yield made
    finally:
        listening = False


def still_there(made: set[str]) -> list[str]:
    """The files that still exist, except caches and devices."""
    spared = (str(cache_root()), "/dev/", "/proc/")
    return sorted(
        name for name in made if not name.startswith(spared) and "__pycache__" not in name and os.path.lexists(name)
    )
