"""What the tool-call contract costs, beside TRL's and RL-Factory's tool steps.

    python benchmarks/tools.py            # writes benchmarks/results/tools.md

Everything takes turns in one run, and each turn begins with a new manager. TRL's side is the tool loop of
its own `GRPOTrainer`, with a model that says nothing after its calls. RL-Factory's is the tool step of its own
`QwenManager` on a blocking `BaseTool`, which starts from the model's text; it needs a checkout and another environment,
as it needs an older mcp:

    python benchmarks/tools.py --rl-factory CHECKOUT --rl-factory-python ENVIRONMENT/bin/python
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import ModuleType, SimpleNamespace
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

from machine import describe, publish, sized

RESULTS = Path(__file__).parent / "results" / "tools.md"
TOOL_S = 0.1
TRAJECTORIES = sized(64, 4)
MANY = sized((1024, 2048), (16, 32))  # calls at once
CALLS = sized(2000, 20)  # for the overhead of one
ARGUMENTS = {"query": "who founded the city of Oslo", "k": 4}

Measure = Callable[[], float]


async def nap(i: int) -> str:
    await asyncio.sleep(TOOL_S)
    return "done"


def blocking_nap(i: int) -> str:
    time.sleep(TOOL_S)
    return "done"


async def search(query: str, k: int = 3, language: str = "en") -> str:
    """Search an encyclopedia.

    Args:
        query: what to look for.
        k: how many documents.
        language: of the documents.
    """
    return "Oslo was founded by King Harald Hardrada in 1049."


def blocking_search(query: str, k: int = 3, language: str = "en") -> str:
    return "Oslo was founded by King Harald Hardrada in 1049."


def ours(fn: Callable[..., Any], calls: int, *, first: bool = False, clock: Measure = time.perf_counter) -> Measure:
    """So many trajectories, each with one call, through one manager: its second batch, or its first."""

    async def run() -> float:
        manager = our_manager(fn, concurrency=calls, total_concurrency=calls)
        asked = [our_call(fn, {"i": number}) for number in range(calls)]
        context = our_context()
        for _ in range(1 if first else 2):
            start = clock()
            results = await asyncio.gather(*(manager.invoke([call], context) for call in asked))
            seconds = clock() - start
            assert all(result.content == "done" for (result,) in results)
        await manager.close()
        return seconds

    return lambda: asyncio.run(run())


def bare(calls: int, clock: Measure = time.perf_counter) -> Measure:
    """The same naps without any contract: what asyncio itself needs; the second batch, too."""

    async def run() -> float:
        for _ in range(2):
            start = clock()
            await asyncio.gather(*(nap(number) for number in range(calls)))
            seconds = clock() - start
        return seconds

    return lambda: asyncio.run(run())


def bare_threads(calls: int) -> Measure:
    """The same naps, a thread each, started one after the other."""

    def run() -> float:
        start = time.perf_counter()
        threads = [threading.Thread(target=blocking_nap, args=(number,)) for number in range(calls)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start

    return run


def our_overhead(fn: Callable[..., Any], cache: str = "off") -> Measure:
    """The median of one call at a time, in microseconds; the tool itself takes none."""

    async def run() -> float:
        manager = our_manager(fn, cache=cache)
        call, context, times = our_call(fn, ARGUMENTS), our_context(), []
        for _ in range(CALLS):
            start = time.perf_counter()
            await manager.invoke([call], context)
            times.append(time.perf_counter() - start)
        await manager.close()
        return median(times[CALLS // 10 :]) * 1e6

    return lambda: asyncio.run(run())


def our_manager(fn: Callable[..., Any], **config: Any) -> Any:
    from rlfactory_core.tools import DefaultToolManager, FunctionTool
    from rlfactory_core.tools.settings import ToolsConfig

    return DefaultToolManager([FunctionTool(fn)], ToolsConfig(**config))


def our_call(fn: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    from rlfactory_core.types import ToolCall

    return ToolCall("call", fn.__name__, json.dumps(arguments), arguments)


def our_context() -> Any:
    from rlfactory_core.context import ToolContext
    from rlfactory_core.types import Sample

    return ToolContext("trajectory", Sample("sample", "?"))


class Trl:
    """`GRPOTrainer._tool_call_loop` as it is; what stands around it is given by hand."""

    def __init__(self) -> None:
        from trl import GRPOTrainer

        self._step = GRPOTrainer._tool_call_loop
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def step(self, fn: Callable[..., Any], arguments: Callable[[int], dict[str, Any]]) -> Measure:
        tools = {fn.__name__: fn}
        asynchronous = asyncio.iscoroutinefunction(fn)
        trainer = SimpleNamespace(
            max_tool_calling_iterations=1,
            max_completion_length=10**6,
            use_vllm=False,
            model=SimpleNamespace(config=SimpleNamespace(max_position_embeddings=10**6)),
            tools=[fn],
            environment_factories=None,
            async_loop=self._loop,
            _is_vlm=False,
            _tokenizer=None,
            _sync_tool_dicts=[{} if asynchronous else tools] * TRAJECTORIES,
            _async_tool_dicts=[tools if asynchronous else {}] * TRAJECTORIES,
            _get_tool_suffix_ids=lambda messages: [0],
            _generate_single_turn=lambda ids, *rest, **options: ([[] for _ in ids], None),
        )

        def run() -> float:
            said = [
                [
                    {
                        "role": "assistant",
                        "tool_calls": [
                            {"type": "function", "function": {"name": fn.__name__, "arguments": arguments(i)}}
                        ],
                    }
                ]
                for i in range(TRAJECTORIES)
            ]
            ids: list[list[int]] = [[0] for _ in said]
            start = time.perf_counter()
            done = self._step(trainer, [[] for _ in said], ids, [[0] for _ in said], said, None, None, {})
            seconds = time.perf_counter() - start
            assert done[4:6] == (TRAJECTORIES, 0), "every call is made, and none fails"
            return seconds

        return run

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def rl_factory(checkout: str, python: str) -> Measure:
    command = [python, __file__, "--measure-rl-factory", checkout]
    return lambda: float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()[-1])


def measure_rl_factory(checkout: str) -> float:
    """In its own environment, without the packages' ``__init__``s: those import its training code."""
    sys.path.insert(0, checkout)
    for name in ("envs", "envs.tool_manager"):
        package = ModuleType(name)
        package.__path__ = [str(Path(checkout, *name.split(".")))]
        sys.modules[name] = package
    from envs.tool_manager.qwen3_manager import QwenManager  # type: ignore[import-not-found]
    from qwen_agent.tools.base import BaseTool

    class Nap(BaseTool):
        name, description = "nap", "Take a nap."
        parameters = [{"name": "i", "type": "integer", "description": "whose", "required": True}]

        def call(self, params: Any, **options: Any) -> str:
            return blocking_nap(json.loads(params)["i"])

    manager = QwenManager({"config_path": None, "enable_limiter": False, "use_storage_manager": False})
    manager.tool_map["nap"] = Nap()
    texts = [f'<tool_call>\n{{"name": "nap", "arguments": {{"i": {i}}}}}\n</tool_call>' for i in range(TRAJECTORIES)]
    start = time.perf_counter()
    _, results = manager.execute_actions(texts)
    seconds = time.perf_counter() - start
    assert len(results) == TRAJECTORIES
    assert all("done" in str(result) for result in results)
    return seconds


class Row:
    """One line of the table: who does what, what was found, and the bar where there is one."""

    def __init__(
        self,
        what: str,
        who: str,
        measure: Measure,
        bar: float | None = None,
        ideal: Row | None = None,
        *,
        unfrozen: bool = False,
    ) -> None:
        self.what, self.who, self.measure = what, who, measure
        self.bar = bar  # of the median, or of the median ratio to the ideal measured just beside it
        self.ideal = ideal
        self.unfrozen = unfrozen  # the collector of cycles goes through all that is loaded, torch included
        self.found: list[float] = []

    def ratio(self) -> float | None:
        if self.ideal is None:
            return None
        return median(mine / its for mine, its in zip(self.found, self.ideal.found, strict=True))

    def missed(self) -> bool:
        judged = median(self.found) if self.ideal is None else self.ratio()
        return self.bar is not None and judged is not None and judged > self.bar

    def line(self) -> str:
        digits = 3 if median(self.found) < 20 else 1
        cells = [self.what, self.who]
        cells += [f"{value:,.{digits}f}" for value in (min(self.found), median(self.found), max(self.found))]
        cells += ["" if self.ideal is None else f"{self.ratio():.2f} x", "" if self.bar is None else f"≤ {self.bar:g}"]
        return "| " + " | ".join(cells) + " |"


def rows(trl: Trl | None, rl_factory_step: Measure | None) -> list[Row]:
    found: list[Row] = []
    for fn, kind, bar in ((nap, "async", 0.12), (blocking_nap, "blocking", 0.15)):
        what = f"{TRAJECTORIES} {kind} calls, s"
        found.append(Row(what, "rlfactory", ours(fn, TRAJECTORIES), bar))
        found.append(Row(what, "rlfactory, its first", ours(fn, TRAJECTORIES, first=True), bar))
        if trl:
            found.append(Row(what, "TRL", trl.step(fn, lambda i: {"i": i})))
        if rl_factory_step and fn is blocking_nap:
            found.append(Row(what, "RL-Factory", rl_factory_step))
    for fn, kind, alone in ((nap, "async", bare), (blocking_nap, "blocking", bare_threads)):
        for calls in MANY:
            what = f"{calls:,} {kind} calls, s"
            ideal = Row(what, "asyncio alone" if fn is nap else "threads alone", alone(calls))
            bar = 1.6 if fn is nap and calls == MANY[-1] else 1.25
            found += [Row(what, "rlfactory", ours(fn, calls), bar, ideal), ideal]
        found.append(Row(what, "rlfactory, no gc.freeze()", ours(fn, calls), unfrozen=True))
    most = MANY[-1]
    cpu = f"CPU of one of {most:,} async calls, µs"
    for who, used in (
        ("rlfactory", ours(nap, most, clock=time.process_time)),
        ("asyncio alone", bare(most, time.process_time)),
    ):
        found.append(Row(cpu, who, lambda used=used: used() / most * 1e6))
    found += [
        Row("one async call of no time, µs", "rlfactory", our_overhead(search), 150),
        Row("one blocking call of no time, µs", "rlfactory", our_overhead(blocking_search), 150),
        Row("one answer from memory, µs", "rlfactory", our_overhead(search, "memory"), 150),
        Row("one answer from disk, µs", "rlfactory", our_overhead(search, "disk")),
    ]
    if trl:
        for fn, kind in ((search, "async"), (blocking_search, "blocking")):
            step = trl.step(fn, lambda i: ARGUMENTS)
            found.append(Row(f"one {kind} call of no time, µs", "TRL", lambda step=step: step() / TRAJECTORIES * 1e6))
    return found


def report(found: list[Row], repeats: int, load: tuple[float, float], command: str) -> str:
    lines = "\n".join(row.line() for row in found)
    missed = ", ".join(f"{row.what}" for row in found if row.missed()) or "none"
    return f"""# What a tool call costs

`{command}`

So many trajectories at once, each with one call that takes {TOOL_S} s; then single calls that take no time, one after
the other, with three arguments. Ours is everything between the model's parsed call and the result that it sees:
arguments checked against the schema, limits, deadline, breaker, fault attribution, truncation and measurement. TRL's is
the tool loop of its `GRPOTrainer` (no deadline, no check) with a model that says nothing after its calls, and
RL-Factory's the tool step of its `QwenManager`, from the model's text on. {repeats} rounds, in which all of them take
turns. Ours and the bare calls are a second batch, as in every step of a training but the first, which is shown for
{TRAJECTORIES}: no thread has been started then.

| what | who | min | median | max | to the ideal | bar |
|---|---|---|---|---|---|---|
{lines}

"To the ideal" is the median ratio to the bare calls measured beside ours in the same round: asyncio alone needs more
than {TOOL_S} s for so many timers, and so do threads. A blocking tool has at most 1,024 threads: beyond that its calls
wait for one, so 2,048 take two turns; a tool for more calls at once should be async. All is measured after
`gc.freeze()`, but for the rows that say otherwise: thousands of calls in flight are objects enough to set off a full
collection, and where torch is loaded, one that goes through all of it takes longer than the calls.

Missed bars: {missed}.

Made on {describe("trl", "jsonschema", "pydantic")}.
The machine's load average was {load[0]:.1f} before and {load[1]:.1f} at the end; the benchmark's own is about 1.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=sized(5, 1))
    parser.add_argument("--rl-factory", metavar="CHECKOUT")
    parser.add_argument("--rl-factory-python", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--no-trl", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--measure-rl-factory", metavar="CHECKOUT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure_rl_factory:
        print(measure_rl_factory(options.measure_rl_factory))
        return
    trl = None if options.no_trl else Trl()
    checkout = options.rl_factory and str(Path(options.rl_factory).resolve())
    found = rows(trl, rl_factory(checkout, options.rl_factory_python) if checkout else None)
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.repeats):
            os.environ["RLFACTORY_CACHE"] = str(Path(folder, str(number)))
            for row in found:
                gc.collect()
                (gc.unfreeze if row.unfrozen else gc.freeze)()
                row.found.append(row.measure())
                gc.unfreeze()
            print(f"round {number + 1} of {options.repeats}", flush=True)
    if trl:
        trl.close()
    command = "python benchmarks/tools.py" + (" --rl-factory …" if checkout else "")
    publish(options.out, report(found, options.repeats, (before, os.getloadavg()[0]), command))


if __name__ == "__main__":
    main()
