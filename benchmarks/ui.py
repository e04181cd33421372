"""`rlfactory ui` beside many and long runs: the time of its pages, the work of an update, the server's memory.

    python benchmarks/ui.py

200 runs. One of them has 100,000 steps, one has 1,000,000 trajectories. The server is a process of its own; times are
those of whole requests over the loopback, the median of five unless it says "first". The processor time of an update is
the server's own, from one new line of metrics to the page part that shows it.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
from machine import describe, finish, publish, sized

from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.types import Message, Sample, Score, StopReason, ToolCall, ToolResult, Trajectory, Turn

RUNS, STEPS, TRAJECTORIES = sized(200, 8), sized(100_000, 2_000), sized(1_000_000, 2_000)
IN_A_FILE = sized(500, 100)  # trajectories of a step
METRICS = 60  # numbers a step
PAGES = (  # what, path, and the seconds that its first request may take
    ("the list of runs", "/", 0.5),
    ("the run of many steps", "/runs/long", 1.0),
    ("trajectories of a step", "/runs/many/trajectories?file=step-000002", 1.0),
    ("one trajectory", "/runs/many/trajectories/step-000002/7", 1.0),
)
RESULTS = Path(__file__).parent / "results" / "ui.md"


def write_runs(root: Path) -> None:
    for number in range(RUNS):
        write_run(root / f"run-{number:03d}", steps=40)
    write_run(root / "long", STEPS)
    many = write_run(root / "many", steps=40)
    first = many.write_trajectories(
        1, (trajectory(number) for number in range(IN_A_FILE)), lambda ids: "text " * len(ids)
    )
    for step in range(2, TRAJECTORIES // IN_A_FILE + 1):
        os.link(first, many.trajectory_file(step))


def write_run(path: Path, steps: int) -> RunFolder:
    folder = RunFolder.create("search", path)
    folder.write_config({"plugin": "search", "engine": "local", "seed": 0, "train": {"steps": steps}})
    with folder.metrics.open("w", encoding="utf-8") as file:
        file.writelines(row(step) for step in range(1, steps + 1))
    results = {"exact_match": 0.5}
    folder.write_summary({"plugin": "search", "steps": steps, "success": "exact_match", "eval": {"before": results}})
    return folder


def row(step: int) -> str:
    noise = random.Random(step)
    numbers = {f"tool/search/measure_{number}": noise.random() for number in range(METRICS - 20)}
    named = ("reward", "exact_match", "tool_calls", "turns", "sampled_tokens", "entropy", "loss", "grad_norm", "step_s")
    held_out = {"eval/exact_match": noise.random()} if step % 10 == 0 else {}
    return json.dumps({"step": step, **{name: noise.random() for name in named}, **numbers, **held_out}) + "\n"


def trajectory(number: int) -> Trajectory:
    call = ToolCall("c", "search", '{"query": "Orla Finn"}', {"query": "Orla Finn"})
    result = ToolResult("c", "search", "Orla Finn leads Velk Works. " * 4, latency_s=0.01)
    turns = (
        Turn(
            tuple(range(120)), tuple(range(30)), (-0.5,) * 30, Message("assistant", "", tool_calls=(call,)), (result,)
        ),
        Turn(tuple(range(40)), tuple(range(15)), (-0.5,) * 15, Message("assistant", "<answer>Velk</answer>")),
    )
    sample = Sample(f"q{number // 8}", "Where does Orla Finn work?", "Velk", slice="one_hop")
    return Trajectory(sample, number % 8, turns, StopReason.FINAL_ANSWER, score=Score(float(number % 2)))


@contextmanager
def server(runs: Path) -> Iterator[tuple[httpx.Client, int]]:
    """A browser that is let in, and the server's process."""
    command = [sys.executable, "-m", "rlfactory_core", "ui", str(runs), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            link = process.stdout.readline().strip()
            with httpx.Client(base_url=link.partition("/login")[0], timeout=120.0) as client:
                client.get(link)
                yield client, process.pid
        finally:
            process.terminate()


def seconds(get: Callable[[], httpx.Response]) -> float:
    start = time.perf_counter()
    assert get().status_code == 200
    return time.perf_counter() - start


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def updates(client: httpx.Client, pid: int, runs: Path, count: int = 20) -> float:
    """Processor seconds of one update of the long run's page."""
    before = processor_s(pid)
    with (runs / "long" / "metrics.jsonl").open("a", encoding="utf-8") as file:
        for number in range(count):
            file.write(row(STEPS + 1 + number))
            file.flush()
            assert client.get("/runs/long/now").status_code == 200
    return (processor_s(pid) - before) / count


@dataclass(frozen=True)
class Measured:
    what: str
    shown: str
    value: float
    bar: float
    unit: str


def measure(runs: Path) -> Iterator[Measured]:
    with server(runs) as (client, pid):
        for what, path, bar in PAGES:
            get = partial(client.get, path)
            first, again = seconds(get), statistics.median(seconds(get) for _ in range(5))
            yield Measured(what, f"{first:.3f} s first, {again:.3f} s", first, bar, "s")
        work = updates(client, pid, runs)
        yield Measured("processor time of an update", f"{1000 * work:.0f} ms", 1000 * work, 50, "ms")
        before = memory_mb(pid)
        for step in range(2, 2 + min(60, TRAJECTORIES // IN_A_FILE - 1)):
            client.get(f"/runs/many/trajectories?file=step-{step:06d}")
        after = memory_mb(pid)
        yield Measured("memory of the server", f"{before:.0f} MB, after 60 files {after:.0f} MB", after, 150, "MB")


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        write_runs(Path(place))
        found = list(measure(Path(place)))
    rows = "\n".join(f"| {item.what} | {item.shown} | {item.bar:g} {item.unit} |" for item in found)
    text = f"""# rlfactory ui

{RUNS + 2} runs; one has {STEPS:,} steps, one {TRAJECTORIES:,} trajectories.

| what | measured | bar |
|---|---|---|
{rows}

{describe("starlette", "uvicorn")}
"""
    publish(RESULTS, text)
    finish(held=all(item.value <= item.bar for item in found))


if __name__ == "__main__":
    main()
