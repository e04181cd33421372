"""Runs as processes: which one writes to a folder, and starting, stopping and resuming one."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from rlfactory_core.cache import write_atomically
from rlfactory_core.errors import UsageError
from rlfactory_core.reporting import RunFolder

LAUNCHES = ".launches"  # beside the runs: what was started here, and what it wrote
_HOLDER = re.compile(r"process (\d+) on (.+), since ")
_LOG_SHOWN = 20_000  # bytes


@dataclass(frozen=True, slots=True)
class Launch:
    """A run that was started here. It is known by this until its folder exists."""

    name: str
    words: tuple[str, ...]  # after ``rlfactory``
    pid: int
    started: float  # seconds since the epoch
    stopped: bool = False  # whether it was told to, from here

    @property
    def command(self) -> str:
        return shlex.join(["rlfactory", *self.words])

    @property
    def alive(self) -> bool:
        return _lives_since(self.pid, self.started)


def holder(folder: RunFolder) -> int | None:
    """The process of this machine that writes to the run; None if there is none.

    The lock itself is not tried, because a run that starts at this moment would be refused it.
    """
    lock = folder.path / ".lock"
    try:
        found, since = _HOLDER.match(lock.read_text(encoding="utf-8")), lock.stat().st_mtime
    except OSError:
        return None
    if found is None or found[2] != platform.node():
        return None
    pid = int(found[1])
    return pid if _lives_since(pid, since) and _holds_locks(pid) else None


def stop(folder: RunFolder, *, now: bool) -> None:
    """Ask the run to stop after its step, or at once.

    Raises:
        UsageError: no process of this machine writes to it.
    """
    pid = holder(folder)
    if pid is None:
        raise UsageError(f"{folder.name} does not run on this machine: there is nothing to stop.")
    runs = folder.path.parent
    if (launch := launched(runs, folder.name)) is not None:
        _save(runs, replace(launch, stopped=True))
    os.kill(pid, signal.SIGINT)
    if now:
        time.sleep(0.3)  # two signals at once would be taken as one
        if holder(folder) == pid:
            os.kill(pid, signal.SIGINT)


def start(runs: Path, name: str, words: Sequence[str]) -> Launch:
    """Start ``rlfactory`` with these words; it goes on when this server ends."""
    place = runs / LAUNCHES
    place.mkdir(parents=True, exist_ok=True)
    with (place / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - a list of words, for rlfactory itself
            [sys.executable, "-m", "rlfactory_core", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    threading.Thread(target=process.wait, daemon=True).start()  # so that it does not stay behind as a zombie
    launch = Launch(name, tuple(words), process.pid, time.time())
    _save(runs, launch)
    return launch


def _save(runs: Path, launch: Launch) -> None:
    write_atomically(runs / LAUNCHES / f"{launch.name}.json", (json.dumps(asdict(launch)) + "\n").encode())


def launched(runs: Path, name: str) -> Launch | None:
    try:
        found = json.loads((runs / LAUNCHES / f"{name}.json").read_text(encoding="utf-8"))
        return Launch(**{**found, "words": tuple(found["words"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def launches(runs: Path) -> list[str]:
    return sorted(path.stem for path in (runs / LAUNCHES).glob("*.json"))


def log_text(runs: Path, name: str) -> str:
    """The end of what the run has printed."""
    try:
        with (runs / LAUNCHES / f"{name}.log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_SHOWN))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def forget(runs: Path, name: str) -> None:
    for ending in ("json", "log"):
        (runs / LAUNCHES / f"{name}.{ending}").unlink(missing_ok=True)


def _lives_since(pid: int, time_s: float) -> bool:
    """Whether the process lives, and began before that time; a later one of the same number is another one."""
    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= time_s + 1)
    except psutil.Error:
        return False


def _holds_locks(pid: int) -> bool:
    """Whether the process holds a lock of a file; True where the system does not tell."""
    try:
        lines = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
    except OSError:
        return True
    return any(line.split()[1:2] == ["FLOCK"] and line.split()[4] == str(pid) for line in lines)
