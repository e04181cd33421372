"""Attempts at web pages: one Chromium with a context for each attempt, beside a Chromium for each attempt.

    python benchmarks/browser.py

An attempt opens a page of MiniWoB++, acts five times and reads the page after each action; nothing waits for a model.
Both ways play through the task's own `Browsers`. Memory is the sum of the proportional set sizes (PSS) of all processes
that the benchmark has started, with as many pages open as attempts at once, in their fifth step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import psutil
from machine import describe, finish, publish, sized
from rlfactory_benchmarks.miniwob.browser import Browsers, Page

RESULTS = Path(__file__).parent / "results" / "browser.md"
PAGE, STEPS = "form-sequence-2", 5
AT_ONCE = sized((1, 8, 32), (1, 2))
ATTEMPTS = sized(32, 4)  # of one browser; the other way has a quarter, since it is slow
PROGRAM = which("chromium") or ""


@dataclass(frozen=True, slots=True)
class Measured:
    """One way with so many attempts at once."""

    per_hour: float
    megabytes: float  # of one attempt, its share of what all of them share included
    processes: int


def browsers(most: int) -> Browsers:
    return Browsers(PROGRAM, most=most, step_s=0.5, deadline_s=300.0)


def address() -> str:
    package = find_spec("miniwob")
    assert package is not None
    assert package.origin is not None
    return (Path(package.origin).parent / "html" / "miniwob" / f"{PAGE}.html").as_uri()


async def act(page: Page) -> None:
    """Five actions on a form of radio buttons and fields; none of them ends the episode."""
    await page.read()
    refs = [int(line.partition("[")[2].partition("]")[0]) for line in page.text.splitlines() if " input " in line]
    assert len(refs) > STEPS
    for ref in refs[:STEPS]:
        await page.act(lambda inside, at: inside.mouse.click(*at), ref)
        assert not page.done


def used() -> tuple[float, int]:
    """Megabytes and number of all processes that this one has started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found.append(process.memory_full_info().pss / 1e6)
    return sum(found), len(found)


async def play(shared: Browsers | None, seeds: Sequence[int]) -> None:
    async with AsyncExitStack() as stack:
        for seed in seeds:
            own = shared or browsers(1)
            if shared is None:
                stack.push_async_callback(own.close)
            async with own.page(address(), seed, "train") as page:
                await act(page)
            if shared is None:
                await own.close()


async def measure(at_once: int, attempts: int, *, is_shared: bool) -> Measured:
    """Attempts in as many lanes as are played at once."""
    shared = browsers(at_once) if is_shared else None
    try:
        if shared is not None:
            await shared.open()
        began = time.perf_counter()
        lanes = [range(1 + lane, attempts + 1, at_once) for lane in range(at_once)]
        await asyncio.gather(*(play(shared, lane) for lane in lanes))
        seconds = time.perf_counter() - began
        async with AsyncExitStack() as stack:  # once more, and all stay open

            async def opened(seed: int) -> None:
                own = shared or browsers(1)
                if shared is None:
                    stack.push_async_callback(own.close)
                await act(await stack.enter_async_context(own.page(address(), seed, "train")))

            await asyncio.gather(*map(opened, range(at_once)))
            megabytes, processes = used()
        return Measured(3600 * attempts / seconds, megabytes / at_once, processes)
    finally:
        if shared is not None:
            await shared.close()


def main() -> None:
    rows, gains = [], []
    for at_once in AT_ONCE:
        one = asyncio.run(measure(at_once, max(ATTEMPTS, at_once), is_shared=True))
        # 32 browsers with nothing in common do not fit into a small machine.
        many = asyncio.run(measure(at_once, max(ATTEMPTS // 4, at_once), is_shared=False)) if at_once <= 8 else None
        each = (one, many) if many else (one,)
        cells = [f"{cell.per_hour:,.0f} | {cell.megabytes:,.0f} MB" for cell in each]
        rows.append(f"| {at_once} | {' | '.join(cells)}{'' if many else ' | not measured |'} |")
        if many:
            gains.append(one.per_hour / many.per_hour)
    lines = [
        "# One browser for many attempts",
        "",
        f"`python benchmarks/browser.py` · {describe('playwright', 'miniwob')}",
        "",
        f"The page {PAGE}, {STEPS} actions, each followed by a look at the page. Megabytes are those of one attempt.",
        "",
        "| attempts at once | one browser: attempts an hour | memory | a browser for each: attempts an hour | memory |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]
    publish(RESULTS, "\n".join(lines))
    finish(held=min(gains) > 1.0)


if __name__ == "__main__":
    main()
