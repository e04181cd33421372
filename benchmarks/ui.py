"""`rlfactory ui` beside many and long runs: the time of its pages, the work of an update, the server's memory.

    python benchmarks/ui.py

200 runs. One of them has 100,000 steps, one has 1,000,000 trajectories. The server is a process of its own; times are
those of whole requests over the loopback, the median of five unless it says "first". The processor time of an update is
the server's own, from one new line of metrics to the page part that shows it.

A training beside an open page: the search demo is trained several times from the same seed, so that all trainings take
the same steps. While it goes on, a page of the run is opened and closed again every few steps; it holds the run's
server-sent events, and fetches the changed part as a browser does, without drawing it. Every step is timed as often
with a page as without. Headline, fixed before the run that is published: the ratio of the sums over all steps.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
SETTINGS = ("rollout.deterministic=true", "eval.limit=8", "eval.every=0", "checkpoint.every=0")
TRAININGS, TRAINED, BLOCK = sized(6, 2), sized(48, 4), sized(6, 1)  # runs; their steps; steps with a page, then without
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


async def hold_page(client: httpx.AsyncClient, name: str) -> None:
    """A page of a run, open until it is cancelled."""
    async with client.stream("GET", f"/runs/{name}/events", timeout=None) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line.startswith("event:"):
                renewal = asyncio.ensure_future(client.get(f"/runs/{name}/now"))
                (await asyncio.shield(renewal)).raise_for_status()  # one that has begun is not cut off


async def train(client: httpx.AsyncClient, runs: Path, name: str, first: bool) -> list[tuple[float, bool]]:
    """The seconds of each step after the first block, and whether a page was open.

    Args:
        first: whether the page is open in the even blocks.
    """
    search = ("--plugin", "search", "--steps", str(TRAINED), *SETTINGS)
    command = [sys.executable, "-m", "rlfactory_core", "run", *search, "--out", str(runs / name)]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    ended = asyncio.ensure_future(process.wait())
    metrics, opened, page = RunFolder(runs / name).metrics, list[bool](), None
    while not ended.done():
        done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        while len(opened) <= done:
            opened.append((len(opened) // BLOCK % 2 == 0) == first)
        if opened[-1] and done >= BLOCK and page is None:
            page = asyncio.ensure_future(hold_page(client, name))
        elif page is not None and not opened[-1]:
            await closed(page)
            page = None
        await asyncio.sleep(0.02)
    if page is not None:
        await closed(page)
    assert ended.result() == 0
    times = [float(row["step_s"] or 0.0) for row in RunFolder(runs / name).read_metrics()]
    return list(zip(times, opened, strict=False))[BLOCK:]


async def closed(page: asyncio.Future[None]) -> None:
    """Raises what the page has raised before."""
    page.cancel()
    with suppress(asyncio.CancelledError):
        await page


async def train_beside(client: httpx.Client, runs: Path) -> tuple[list[float], list[float]]:
    """The seconds of each step, summed over the trainings: beside an open page, and without."""
    beside, alone = [[0.0] * (TRAINED - BLOCK) for _ in range(2)]
    async with httpx.AsyncClient(base_url=client.base_url, cookies=client.cookies, timeout=120.0) as pages:
        for number in range(TRAININGS):
            found = await train(pages, runs, f"training-{number}", first=number % 4 in (0, 3))
            for step, (took, opened) in enumerate(found):
                (beside if opened else alone)[step] += took
    return beside, alone


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
        yield slower(*asyncio.run(train_beside(client, runs)))


def slower(beside: list[float], alone: list[float]) -> Measured:
    each = [100 * (one / other - 1) for one, other in zip(beside, alone, strict=True)]
    low, _, high = statistics.quantiles(each, n=4)
    percent = 100 * (sum(beside) / sum(alone) - 1)
    shown = (
        f"{percent:+.1f} % ({sum(beside):.0f} s, {sum(alone):.0f} s; half of the steps: {low:+.1f} to {high:+.1f} %)"
    )
    return Measured("a training beside an open page", shown, percent, 2, "%")


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
