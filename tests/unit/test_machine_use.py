"""What a run takes of its machine: its children count, and the GPU where torch uses one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from said import Said

from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.loggers import open_loggers
from rlfactory_core.reporting.report import live_sections
from rlfactory_core.reporting.run_data import RunData
from rlfactory_core.training import machine_use
from rlfactory_core.training.machine_use import MachineUse
from rlfactory_core.training.record import Recorder

BUSY = "x = bytearray(200_000_000)\nfor n in range(20_000_000): pass\nprint(flush=True)\ninput()"


@pytest.fixture
def child() -> Iterator[Callable[[], None]]:
    """A call that starts a process, and returns when it has worked and holds 200 MB."""
    started: list[subprocess.Popen[str]] = []

    def start() -> None:
        piped = subprocess.PIPE
        process = subprocess.Popen([sys.executable, "-c", BUSY], stdin=piped, stdout=piped, text=True)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()

    yield start
    for process in started:
        process.communicate("\n", timeout=60)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.mark.slow
@pytest.mark.usefixtures("no_gpu")
def test_a_childs_work_and_memory_count(child: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_use, "EVERY_S", 0.0)
    used = MachineUse()
    before = used.numbers()["machine/memory_gib"]
    child()
    found = used.numbers()
    assert found["machine/cpu_cores"] > 0.05  # the parent only waits
    assert found["machine/memory_gib"] - before > 0.15


@pytest.mark.usefixtures("no_gpu")
def test_it_is_measured_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.0, 0.5, 1.2])
    monkeypatch.setattr(machine_use, "time", SimpleNamespace(monotonic=lambda: next(times)))
    used = MachineUse()
    assert [bool(used.numbers()) for _ in range(3)] == [True, False, True]


def test_the_gpu_is_told_where_torch_uses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library() -> int:
        raise ModuleNotFoundError("pynvml")

    cuda = SimpleNamespace(is_initialized=lambda: True, max_memory_allocated=lambda: 3 * 2**30, utilization=no_library)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    found = MachineUse().numbers()
    assert found["machine/gpu_memory_gib"] == 3.0
    assert "machine/gpu_use" not in found
    cuda.utilization = lambda: 40
    assert MachineUse().numbers()["machine/gpu_use"] == 0.4
    cuda.is_initialized = lambda: False
    assert "machine/gpu_memory_gib" not in MachineUse().numbers()


def test_a_step_has_it_and_the_engines_own_numbers_come_first(tmp_path: Path) -> None:
    folder = RunFolder.create("demo", tmp_path / "run")
    recorder = Recorder(folder, Said(), "reward", open_loggers((), folder, {}))
    recorder.step(1, [], {"trained_tokens": 1.0, "machine/memory_gib": 640.0}, [])
    (row,) = folder.read_metrics()
    assert row["machine/memory_gib"] == 640.0
    assert row["machine/cpu_cores"] is not None
    (section,) = live_sections(RunData(folder, "run", {}, {}, [row, {**row, "step": 2}], ()))
    assert section is not None
    assert "CPU load" in section.html
    assert "Memory" in section.html
    assert "GPU load" not in section.html
