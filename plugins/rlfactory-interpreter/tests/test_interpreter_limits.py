"""Each limit of the code interpreter bites, and the model is told which."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rlfactory_interpreter.sandbox import scratch
from rlfactory_sandbox.folders import remove
from tests.support.interpreters import own_folder, play

from rlfactory_core.types import FaultKind

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the code interpreter needs Linux or macOS")
linux = pytest.mark.skipif(sys.platform != "linux", reason="a limit that only Linux has")

MEMORY = "b = []\nwhile True: b.append(bytearray(1_000_000))"
MANY_FILES = "import time\nfor n in range(6): open(str(n), 'wb').write(b'x' * 1_000_000)\ntime.sleep(60)"
MANY_ENTRIES = "import os, time\nfor n in range(200): os.mkdir(str(n))\ntime.sleep(60)"
THREADS = (
    "import threading, time\nfor _ in range(40): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from own_folder(tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        ("import time\ntime.sleep(60)", {"seconds": 0.2}, "the code ran for longer than 0.2 s and was stopped"),
        ("while True: pass", {"cpu_s": 0.2}, "the code used up its 0.2 s of processor time"),
        pytest.param(MANY_FILES, {"scratch_mb": 4, "file_mb": 2}, "the code left more than 4 MB", marks=linux),
        pytest.param(MANY_ENTRIES, {"scratch_entries": 100}, "or 100 files in its directory", marks=linux),
        pytest.param(
            f"{THREADS}\ntime.sleep(60)", {"threads": 16}, "the code started more than 16 threads", marks=linux
        ),
    ],
)
def test_beyond_some_limits_the_process_is_stopped(code: str, limits: dict[str, float], reason: str) -> None:
    stopped, after = play(f"print('begun')\n{code}", "'code' in dir()", **limits)
    assert stopped.fault is FaultKind.TOOL
    assert reason in stopped.content
    assert "the next call begins anew.\nbegun\n" in stopped.content
    assert after.content == "False\n"


@linux
def test_what_is_found_at_the_end_of_a_call_is_told_at_once() -> None:
    found, after = play(THREADS, "2", threads=16)
    assert "the code started more than 16 threads" in found.content
    assert after.content == "2\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "limits", "error"),
    [
        pytest.param("bytearray(10**10)", {}, "MemoryError", marks=linux),
        pytest.param(MEMORY, {"memory_mb": 200}, "MemoryError", marks=linux),
        ("open('f', 'wb').write(b'x' * 3_000_000)", {"file_mb": 2}, "File too large"),
        ("files = [open('f', 'w') for _ in range(100)]", {"open_files": 32}, "Too many open files"),
    ],
)
def test_beyond_others_the_code_gets_an_exception_and_goes_on(code: str, limits: dict[str, float], error: str) -> None:
    refused, after = play(f"kept = 1\n{code}", "kept", **limits)
    assert refused.fault is FaultKind.TOOL
    assert error in refused.content
    assert after.content == "1\n"


@linux
def test_limits_cannot_be_raised_by_the_code() -> None:
    kinds = ("AS", "FSIZE", "NOFILE", "CORE")
    raises = "resource.setrlimit(resource.RLIMIT_{kind}, (resource.RLIM_INFINITY,) * 2)"
    results = play("import resource", *(raises.format(kind=kind) for kind in kinds))
    assert all("not allowed to raise maximum limit" in item.content for item in results[1:])


@pytest.mark.slow
def test_each_call_has_its_own_processor_time() -> None:
    burn = "import time\nuntil = time.process_time() + 0.4\nwhile time.process_time() < until: pass"
    assert [item.fault for item in play(burn, burn, burn, cpu_s=0.6)] == [None, None, None]


def test_much_output_is_cut_in_the_middle_and_costs_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = "print('the beginning')\nfor _ in range(300): print('x' * 1_000_000)\nprint('the end')\n1 / 0"
    (result,) = play(code, output_bytes=1000, seconds=60, cpu_s=60)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * (1 if sys.platform == "darwin" else 1024) < 50_000_000
    assert "the beginning\nxxx" in result.content
    assert "bytes left out]\nxxx" in result.content
    assert "xxx\nthe end\nTraceback" in result.content
    assert result.content.endswith("ZeroDivisionError: division by zero\n")
    assert len(result.content) < 1200


@pytest.mark.slow
def test_endless_output_ends_with_the_time() -> None:
    (result,) = play("n = 0\nwhile True:\n    print(n)\n    n += 1", seconds=0.5, output_bytes=400)
    assert result.fault is FaultKind.TOOL
    assert "ran for longer than 0.5 s" in result.content
    assert "\n0\n1\n2\n" in result.content


def test_output_that_fits_is_whole_and_a_cut_character_is_no_error() -> None:
    exact, cut = play("print('é' * 99, end='')\nprint('é')", "print('é' * 1000)", output_bytes=201)
    assert exact.content == "é" * 100 + "\n"
    assert "bytes left out]" in cut.content


def test_a_thread_that_never_stops_writing_does_not_hold_up_an_answer() -> None:
    floods = "import os, threading\ndef flood():\n    while True: os.write(1, b'y' * 1000)"
    results = play(f"{floods}\nthreading.Thread(target=flood, daemon=True).start()", "import time\ntime.sleep(0.2)")
    assert [item.fault for item in results] == [None, None]
    assert "yyy" in results[-1].content


def test_removing_a_directory_copes_with_what_code_leaves_there(tmp_path: Path) -> None:
    folder, outside = tmp_path / "scratch", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (folder / "link").symlink_to(outside)
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    (folder / "odd\n\udcff").write_text("")
    here = os.open(folder, os.O_RDONLY)
    for _ in range(450):  # its path is longer than a path may be
        os.mkdir("deep-deep", dir_fd=here)
        there = os.open("deep-deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = there
    os.mkdir("shut", 0, dir_fd=here)
    os.close(here)
    assert scratch.exceeds(str(folder), 10**9, 10**9)  # more than can be looked at
    assert not scratch.exceeds(str(outside), 10**9, 1)
    assert scratch.exceeds(str(outside), 100, 10)
    remove(str(folder))
    assert [item.name for item in tmp_path.iterdir() if item.name != "folders"] == ["outside"]
    assert (outside / "kept").read_text() == "kept"
