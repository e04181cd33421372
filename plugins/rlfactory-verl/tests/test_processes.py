"""After a run no process and no shared memory of its own is left, however it ended, and nobody else's is touched."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

psutil = pytest.importorskip("psutil", reason="the verl engine needs it")
from rlfactory_verl.cluster import processes  # noqa: E402

SHM = Path("/dev/shm")
pytestmark = pytest.mark.skipif(not SHM.is_dir(), reason="needs a file system for shared memory")

# Keeps a log in a folder and a file in shared memory open, and starts another such process if an argument says so.
PROGRAM = """
import mmap, signal, subprocess, sys, time
program, log, memory, kind = sys.argv[1:5]
if kind == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
opened = open(log, "a") if log else None
if memory:
    file = open(memory, "wb+")
    file.write(b"x" * 4096)
    file.flush()
    mapped = mmap.mmap(file.fileno(), 4096)
if kind == "parent":
    command = [sys.executable, "-c", program, program, log, memory + "-child", ""]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    child.stdout.readline()
print("ready", flush=True)
time.sleep(600)
"""
DRIVER = """
import subprocess, sys
from pathlib import Path
from rlfactory_verl.cluster.janitor import Janitor

program, folder, sync, memory = sys.argv[1:]
janitor = Janitor([Path(folder), Path(sync)])
child = subprocess.Popen(
    [sys.executable, "-c", program, program, folder + "/worker.log", memory, "parent"],
    stdout=subprocess.PIPE, start_new_session=True,
)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.readline()
janitor.finish()
print("tidy", flush=True)
sys.stdin.readline()
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def name() -> Iterator[str]:
    """What the test's files in shared memory begin with."""
    made = f"rlf-test-{uuid.uuid4().hex[:12]}"
    yield made
    for path in SHM.glob(f"{made}-*"):
        path.unlink()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the program, and wait until it has all open."""
    started: list[subprocess.Popen[bytes]] = []

    def start(log: Path | str = "", memory: Path | str = "", kind: str = "") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PROGRAM, "", str(log), str(memory), kind]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def test_the_processes_of_a_run_are_found_by_its_folder(tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "rlf-ray-1"
    folder.mkdir()
    near = tmp_path / "rlf-ray-12"
    near.mkdir()
    logs, names, other = start(log=folder / "log"), start(kind=str(folder)), start(log=near / "log")
    with (folder / "own").open("w"):  # the driver's own process is never meant
        found = {process.pid for process in processes.processes_of(folder)}
    assert {logs.pid, names.pid} <= found
    assert not {other.pid, os.getpid()} & found


def test_a_process_that_ignores_sigterm_is_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_S", 0.3)
    polite, stubborn, other = start(), start(kind="stubborn"), start()
    processes.end([psutil.Process(polite.pid), psutil.Process(stubborn.pid)])
    assert not alive(polite.pid)
    assert not alive(stubborn.pid)
    assert alive(other.pid)


def test_a_semaphore_in_use_stays() -> None:
    """The C library maps a semaphore before it has its name."""
    semaphore: Any = multiprocessing.get_context("spawn").Semaphore()
    name = "sem." + semaphore._semlock.name.removeprefix("/")
    assert (SHM / name).exists()
    processes.remove_shared_memory({name})
    assert (SHM / name).exists()


def test_shared_memory_that_somebody_uses_stays(name: str, start: Start) -> None:
    used, left = SHM / f"{name}-used", SHM / f"{name}-left"
    left.write_text("x")
    process = start(memory=used)
    assert processes.shared_memory_of([psutil.Process(process.pid)]) == {used.name}
    processes.remove_shared_memory({used.name, left.name, f"{name}-gone"})
    assert (used.exists(), left.exists()) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["by itself", "kill -9"])
def test_the_janitor_cleans_up(ends: str, name: str, start: Start, tmp_path: Path) -> None:
    before, others = SHM / f"{name}-before", SHM / f"{name}-others"
    before.write_text("x")
    other = start(log=tmp_path / "log", memory=others)
    folder, sync = tmp_path / "rlf-ray-1", SHM / f"{name}-sync"
    folder.mkdir()
    sync.mkdir()
    (sync / "weights").write_text("x")
    memory = SHM / f"{name}-run"
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, PROGRAM, str(folder), str(sync), str(memory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert driver.stdout is not None
        assert driver.stdin is not None
        pid = int(driver.stdout.readline())
        family = [pid, *(process.pid for process in psutil.Process(pid).children())]
        assert len(family) == 2
        assert {path.name for path in SHM.glob(f"{name}-run*")} == {f"{name}-run", f"{name}-run-child"}
        if ends == "kill -9":
            driver.send_signal(signal.SIGKILL)
        else:
            driver.stdin.write(b"go\n")
            driver.stdin.flush()
            assert driver.stdout.readline() == b"tidy\n"
            assert not folder.exists()
        wait_for(lambda: not folder.exists() and not sync.exists())
        assert [alive(member) for member in family] == [False, False]
        assert {path.name for path in SHM.glob(f"{name}-*")} == {before.name, others.name}
        assert alive(other.pid)
    finally:
        driver.kill()
        driver.communicate()


def wait_for(happened: Callable[[], Any], seconds: float = 30.0) -> None:
    ends = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < ends
        time.sleep(0.05)
