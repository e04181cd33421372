"""A separate process that cleans up after the driver has ended, even by ``kill -9``.

Started as ``python -m rlfactory_verl.cluster.janitor FOLDER...`` with a pipe from the driver. While the
pipe is open, it notes the shared memory that the run's processes use. When the driver closes it, or dies, the janitor
ends the remaining processes and removes the shared memory and the folders.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from rlfactory_verl.cluster.processes import (
    end,
    processes_of,
    remove_shared_memory,
    semaphores,
    shared_memory_of,
)

POLL_S = 5.0  # a look at all processes takes a tenth of a second
LIMIT_S = 50.0  # for the clean-up
DEADLINE_S = 60.0  # for the janitor's end


class Janitor:
    """The driver's handle of the janitor process.

    Args:
        folders: belong to this run alone; the first one identifies the run's processes.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folder = folders[0]
        command = [sys.executable, "-m", __name__, *map(str, folders)]
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def end_processes(self) -> None:
        """End the processes that a failed start has left; the folders stay."""
        end([process for process in processes_of(self._folder) if process.pid != self._process.pid])

    def finish(self) -> None:
        """Let the janitor clean up now, and wait until it has."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(folders: Sequence[Path]) -> None:
    """The program of the janitor process."""
    before = semaphores()
    driver = os.getppid()  # it may outlive the run, for example in a test
    used: set[str] = set()

    def others() -> list[psutil.Process]:
        return [process for process in processes_of(folders[0]) if process.pid != driver]

    while not select.select([sys.stdin], [], [], POLL_S)[0]:
        used |= shared_memory_of(others())
    ends = time.monotonic() + LIMIT_S
    while time.monotonic() < ends:
        left = others()
        used |= shared_memory_of(left)
        end(left)
        remove_shared_memory(used | (semaphores() - before))
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        # A process that was being started, or wrote a log meanwhile, is found the next time.
        if not others() and not any(folder.exists() for folder in folders):
            break


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
