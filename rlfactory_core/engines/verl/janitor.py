"""A process of its own that tidies up when the driver is gone, however it went: ``kill -9`` leaves nothing behind.

Started as ``python -m rlfactory_core.engines.verl.janitor FOLDER...`` with a pipe from the driver. While the pipe is
open it notes the shared memory that the run's processes use; when the driver closes it, or dies, it ends what is left
of them and removes the memory and the folders.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from rlfactory_core.engines.verl.leftovers import end, processes_of, remove_shared_memory, semaphores, shared_memory_of

POLL_S = 1.0
DEADLINE_S = 60.0  # of the tidying up


class Janitor:
    """The driver's handle.

    Args:
        folders: of the run alone; the first is the one that its processes are known by.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folder = folders[0]
        command = [sys.executable, "-m", __name__, *map(str, folders)]
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def end_processes(self) -> None:
        """End what a start that failed has left; the folders stay."""
        end([process for process in processes_of(self._folder) if process.pid != self._process.pid])

    def finish(self) -> None:
        """Have it tidy up now, and wait for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(folders: Sequence[Path]) -> None:
    """The process itself."""
    before = semaphores()
    driver = os.getppid()  # it may live on after the run, for example under a test
    used: set[str] = set()

    def others() -> list[psutil.Process]:
        return [process for process in processes_of(folders[0]) if process.pid != driver]

    while not select.select([sys.stdin], [], [], POLL_S)[0]:
        used |= shared_memory_of(others())
    left = others()
    used |= shared_memory_of(left)
    end(left)
    remove_shared_memory(used | (semaphores() - before))
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
