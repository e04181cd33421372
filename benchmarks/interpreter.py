"""What a trajectory's code interpreter costs: to start, to call, at many at once, and under a flood of output.

    python benchmarks/interpreter.py      # writes benchmarks/results/interpreter.md

Beside it: a new Python process per trajectory, which is what an interpreter without a fork server would start with.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from machine import describe, publish, sized
from rlfactory_interpreter import code_interpreter

from rlfactory_core import Sample, ToolContext

RESULTS = Path(__file__).parent / "results" / "interpreter.md"
STARTS, CALLS, AT_ONCE = sized((100, 1000, 128), (3, 10, 4))
FLOOD = "for _ in range(1000): print('x' * 1_000_000)"


def cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def context() -> ToolContext:
    return ToolContext("benchmark", Sample("s", "?"))


async def starts(code: str, preload: Sequence[str] = ()) -> tuple[float, float]:
    """Milliseconds by the clock and of processor time, in all processes, for a whole trajectory with one call."""
    tool = code_interpreter(preload=preload, packages=["numpy"])
    warm = context()
    await tool.call({"code": "1"}, warm)
    before, began = cpu_s(resource.RUSAGE_SELF), time.perf_counter()
    for _ in range(STARTS):
        one = context()
        await tool.call({"code": code}, one)
        await one.end()
    wall, own = time.perf_counter() - began, cpu_s(resource.RUSAGE_SELF) - before
    await warm.end()
    children = cpu_s(resource.RUSAGE_CHILDREN)
    await tool.close()
    children = cpu_s(resource.RUSAGE_CHILDREN) - children
    return wall / STARTS * 1e3, (own + children) / STARTS * 1e3


def processes(code: str) -> tuple[float, float]:
    """The same of a new Python process each."""
    before, began = cpu_s(resource.RUSAGE_CHILDREN), time.perf_counter()
    for _ in range(STARTS):
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    wall = time.perf_counter() - began
    return wall / STARTS * 1e3, (cpu_s(resource.RUSAGE_CHILDREN) - before) / STARTS * 1e3


async def others() -> list[str]:
    """The rows that are not about a start."""
    tool = code_interpreter(seconds=60, cpu_s=60)
    contexts = [context() for _ in range(AT_ONCE)]
    first = contexts[0]
    await tool.call({"code": "1"}, first)
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await tool.call({"code": "1"}, first)
        times.append(time.perf_counter() - began)
    rows = [f"| a call of a running interpreter, median | {statistics.median(times) * 1e3:.2f} ms |"]
    for text, code in (("start and answer", "1"), ("sleep 0.1 s", "import time; time.sleep(0.1)")):
        began = time.perf_counter()
        await asyncio.gather(*(tool.call({"code": code}, one) for one in contexts))
        rows.append(f"| {AT_ONCE} at once: {text} | {time.perf_counter() - began:.2f} s |")
    before, began = cpu_s(resource.RUSAGE_SELF), time.perf_counter()
    await tool.call({"code": FLOOD}, first)
    wall, own = time.perf_counter() - began, cpu_s(resource.RUSAGE_SELF) - before
    rows.append(f"| 1 GB printed | {wall:.2f} s, of which our process works {own:.2f} s |")
    await asyncio.gather(*(one.end() for one in contexts))
    await tool.close()
    return rows


def main() -> None:
    rows = []
    for text, (wall, cpu) in {
        "interpreter, one call": asyncio.run(starts("1")),
        "interpreter that imports numpy": asyncio.run(starts("import numpy")),
        "interpreter with numpy preloaded": asyncio.run(starts("import numpy", ["numpy"])),
        "new Python process": processes("1"),
        "new Python process that imports numpy": processes("import numpy"),
    }.items():
        rows.append(f"| {text} | {wall:.1f} | {cpu:.1f} |")
    text = [
        "# The code interpreter",
        "",
        "`python benchmarks/interpreter.py`: a trajectory from start to end, processor time of all processes.",
        "",
        "| a trajectory | ms | ms of processor time |",
        "|---|---|---|",
        *rows,
        "",
        "| | |",
        "|---|---|",
        *asyncio.run(others()),
        "",
        f"Machine: {describe('numpy')}.",
    ]
    publish(RESULTS, "\n".join(text) + "\n")


if __name__ == "__main__":
    main()
