"""What waiting for tools costs, by schedule: 128 trajectories a batch whose tool takes its time.

    python benchmarks/overlap.py            # writes benchmarks/results/overlap.md and overlap.svg

Schedules, all of them settings of the embedded engine, with the same prompts, seeds and latencies:

- lockstep, serial: all trajectories finish their turn, then the calls are made one after the other (Search-R1; also
  TRL, which waits for one trajectory's calls before it makes the next one's).
- lockstep, parallel: all trajectories finish their turn, then all calls are made at once (RL-Factory).
- on-policy: a trajectory whose call is answered goes on at once; the update waits for the whole batch.
- staleness k: k further batches are rolled out meanwhile with the weights at hand (train.staleness=k), and an update
  takes the groups that are complete first. Updates are included. The learning rate is next to nothing, so that all
  schedules see the same policy.

Measure, fixed before the run that is published: the headline, which the bars are held against, is the ratio of the sums
over all batches, as a user waits for all of them. Latencies are not cut at any length, though the tail then rules the
sums: a cut would hide the very waits that a schedule cannot help. The median over batches stands beside it.

The policy is the search task's tiny model after clean demonstrations, the questions those of two hops: two calls a
trajectory. Only waits are simulated (sleeps); generation and search are real. One process, one thread.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from machine import MINIATURE, describe, finish, publish, sized
from parts import StepResult, local_run, play_batch, save, trainer_of, warm_started

from rlfactory_core.context import ToolContext
from rlfactory_core.protocols import Tool
from rlfactory_core.training.loop import Loop
from rlfactory_core.types import Sample
from rlfactory_core.utils.seeds import derive_seed

RESULTS = Path(__file__).parent / "results"
SIGMA = math.log(2.0 / 0.050) / 2.3263  # a lognormal of median 50 ms and p99 2 s
MAIN = sized(0.050, 0.001)
PROMPTS, GROUP = sized(16, 2), 8
SIMULATED = 4000  # batches, for what the latencies alone lead to expect
STALENESS = sized((1, 4, 8), (1,))
WITH_UPDATES = "staleness 4, with updates"
LIMITS = {"concurrency": 2048, "total_concurrency": 2048, "deadline_s": 600.0, "retries": 0}
NO_UPDATE = [{"name": "exact_match", "weight": 0.0}]  # equal rewards, so that nothing is trained
SETTINGS: dict[str, dict[str, Any]] = {
    "lockstep, serial": {"rollout": {"deterministic": True}, "tools": {**LIMITS, "total_concurrency": 1}},
    "lockstep, parallel": {"rollout": {"deterministic": True}, "tools": LIMITS},
    "on-policy": {"tools": LIMITS},
    **{
        f"staleness {k}": {
            "rollout": {"slots": 128 * (k + 1)},
            "train": {"staleness": k},
            "tools": LIMITS,
            "rewards": NO_UPDATE,
        }
        for k in STALENESS
    },
    WITH_UPDATES: {"rollout": {"slots": 128 * 5}, "train": {"staleness": 4}, "tools": LIMITS},
    "on-policy, 2 s deadline": {"tools": {**LIMITS, "deadline_s": 2.0}},
}
ALSO = (WITH_UPDATES, "on-policy, 2 s deadline")  # at the main point only
SCHEDULES = ("lockstep, parallel", "on-policy", *(f"staleness {k}" for k in STALENESS))
BARS = {"staleness 1": 9.0, "staleness 4": 15.0, "staleness 8": 20.0}
LANDMARK = 6.8


@dataclass
class Latency:
    """How long each call takes: drawn from the trajectory's name and the call's number, the same in all schedules."""

    kind: str
    scale: float  # seconds: the median of the lognormal, or the constant
    waited: dict[int, float] = field(default_factory=lambda: defaultdict(float))  # by step, over all calls

    def draw(self, context: ToolContext) -> float:
        number = context.state["calls"] = context.state.get("calls", 0) + 1
        rng = random.Random(derive_seed("latency", context.trajectory_id, number))
        seconds = self.scale * (math.exp(SIGMA * rng.gauss(0.0, 1.0)) if self.kind == "heavy-tailed" else 1.0)
        self.waited[int(context.trajectory_id.split("/")[0])] += seconds
        return seconds


class SlowTool:
    """A tool that answers after a while."""

    def __init__(self, tool: Tool, latency: Latency) -> None:
        self.tool, self.latency = tool, latency
        self.spec, self.idempotent, self.stateful = tool.spec, tool.idempotent, tool.stateful
        self.version, self.deadline_s = tool.version, tool.deadline_s

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        await asyncio.sleep(self.latency.draw(context))
        return await self.tool.call(arguments, context)

    async def close(self) -> None:
        await self.tool.close()


@dataclass(frozen=True)
class Timing:
    """One schedule at one latency: wall seconds and seconds of latency of each batch."""

    walls: list[float]
    waited: list[float]
    calls: float  # a trajectory
    sampled: float  # tokens a batch
    masked: float  # share of the trajectories that a deadline spoilt


def is_two_hop(sample: Sample) -> bool:
    return sample.slice == "two_hop"


async def time_schedule(name: str, latency: Latency, batches: int, model: Path, scratch: Path) -> Timing:
    train = {"lr": 1e-12, "muon_lr": 0.0, "steps": batches, "prompts_per_step": PROMPTS, "group_size": GROUP}
    train |= SETTINGS[name].get("train", {})
    settings = {**SETTINGS[name], "train": train}
    async with local_run(model, scratch, tool=lambda tool: SlowTool(tool, latency), **settings) as local:
        results: list[StepResult] = []
        ends: list[float] = []
        trainer = trainer_of(local, results, is_two_hop, lambda: ends.append(time.perf_counter()))
        await warm_up(trainer, latency)
        if staleness_of(name):
            ends.append(time.perf_counter())
            await trainer.run(1, batches)
            groups = [group for result in results for group in result.groups]
        else:
            groups = []
            for step in range(1, batches + 1):
                ends.append(time.perf_counter())
                groups += (await play_batch(trainer, step))[0]
            ends.append(time.perf_counter())
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    return Timing(
        walls=[after - before for before, after in pairwise(ends)],
        waited=[latency.waited[step] for step in range(1, batches + 1)],
        calls=mean(trajectory.num_tool_calls for trajectory in trajectories),
        sampled=sum(trajectory.num_sampled for trajectory in trajectories) / batches,
        masked=mean(trajectory.masked for trajectory in trajectories),
    )


async def warm_up(trainer: Loop, latency: Latency) -> None:
    """One batch without waiting, of prompts that are not measured."""
    scale, latency.scale = latency.scale, 0.0
    await play_batch(trainer, 1000)
    latency.scale = scale


def staleness_of(name: str) -> int:
    return SETTINGS[name].get("train", {}).get("staleness", 0)


@dataclass(frozen=True)
class Point:
    """All schedules at one latency, and what lockstep with serial calls takes: generation and every latency in turn."""

    latency: Latency
    generation: float
    timings: dict[str, Timing]

    def serial(self, name: str) -> list[float]:
        """Seconds for each of the schedule's batches."""
        return [self.generation + waited for waited in self.timings[name].waited]

    def ratio(self, name: str) -> float:
        """Of the sums over all batches, lockstep with serial calls to this one."""
        return sum(self.serial(name)) / sum(self.timings[name].walls)

    def typical(self, name: str) -> float:
        """The median over batches of that ratio.

        With a staleness of k, k + 1 batches are under way at once, so the means of as many neighbours are looked at.
        """
        size = min(1 + staleness_of(name), len(self.timings[name].walls))
        walls, serial = (_means(values, size) for values in (self.timings[name].walls, self.serial(name)))
        return median(s / w for s, w in zip(serial, walls, strict=True))

    @property
    def tool_share(self) -> float:
        """Tool seconds for each second of generation."""
        return mean(self.timings["on-policy"].waited) / self.generation


def _means(values: list[float], size: int) -> list[float]:
    """Of every ``size`` neighbours."""
    return [mean(values[start : start + size]) for start in range(len(values) - size + 1)]


def measure(kind: str, scale: float, batches: int, generation: float, model: Path, scratch: Path, *more: str) -> Point:
    timings = {}
    for name in (*SCHEDULES, *more):
        latency = Latency(kind, scale)
        size = 2 * batches if staleness_of(name) else batches  # its first and last batches wait for slow ones
        timings[name] = asyncio.run(time_schedule(name, latency, size, model, scratch / f"{kind}-{scale}-{name}"))
    point = Point(Latency(kind, scale), generation, timings)
    shown = ", ".join(
        f"{name} {mean(timing.walls):.2f} s ({point.ratio(name):.1f} x)" for name, timing in timings.items()
    )
    print(f"{kind} {scale * 1e3:g} ms: {shown}", file=sys.stderr, flush=True)
    return point


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--batches",
        type=int,
        default=sized(30, 2),
        help="at each heavy-tailed latency; 3 at constant ones; twice as many with a staleness",
    )
    parser.add_argument("--medians", type=float, nargs="*", default=sized([0.005, 0.010], []), help="heavy-tailed, s")
    parser.add_argument(
        "--constants", type=float, nargs="*", default=sized([0.005, 0.050, 0.176], [0.001]), help="constant, s"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        model = save(scratch / "model", *warm_started(clean=True))
        free = Latency("constant", 0.0)
        lockstep = asyncio.run(time_schedule("lockstep, parallel", free, sized(5, 1), model, scratch / "free"))
        generation = median(lockstep.walls)
        points = [measure("heavy-tailed", s, arguments.batches, generation, model, scratch) for s in arguments.medians]
        main_point = measure("heavy-tailed", MAIN, arguments.batches, generation, model, scratch, *ALSO)
        points.append(main_point)
        points += [measure("constant", s, sized(3, 2), generation, model, scratch) for s in arguments.constants]
        slept = asyncio.run(
            time_schedule("lockstep, serial", Latency("heavy-tailed", MAIN), 1, model, scratch / "serial")
        )
    check = f"{slept.walls[0]:.1f} s, computed {generation + slept.waited[0]:.1f} s"
    publish(arguments.out / "overlap.md", report(points, main_point, lockstep, check, arguments.batches))
    if not MINIATURE:
        plot(points, arguments.out / "overlap.svg")
    missed = [name for name, bar in BARS.items() if name in SCHEDULES and main_point.ratio(name) < bar]
    print(f"serial, really slept: {check}; missed bars: {missed or 'none'}", file=sys.stderr)
    finish(held=not missed)


def expected(generation: float) -> tuple[float, float]:
    """On-policy's ratio (median of ratios, of sums) if only the latencies of two calls a trajectory counted."""
    rng = random.Random(0)
    serial, ours = [], []
    for _ in range(SIMULATED):
        draws = [MAIN * math.exp(SIGMA * rng.gauss(0.0, 1.0)) for _ in range(2 * PROMPTS * GROUP)]
        serial.append(generation + sum(draws))
        ours.append(generation + max(a + b for a, b in zip(draws[::2], draws[1::2], strict=True)))
    return median(s / o for s, o in zip(serial, ours, strict=True)), sum(serial) / sum(ours)


def report(points: list[Point], main_point: Point, lockstep: Timing, check: str, batches: int) -> str:
    names = SCHEDULES
    rows = []
    for point in points:
        cells = [f"{mean(point.timings[name].walls):.2f} ({point.ratio(name):.1f} x)" for name in names]
        what = f"{point.latency.kind} {point.latency.scale * 1e3:g} ms"
        serial = f"{mean(point.serial('on-policy')):.1f}"
        rows.append("| " + " | ".join([what, f"{point.tool_share:.1f}", serial, *cells]) + " |")
    detail = []
    for name, timing in main_point.timings.items():
        walls = [f"{pick(timing.walls):.2f}" for pick in (min, median, mean, max)]
        bar = (
            f"≥ {BARS[name]:g} x: {'met' if main_point.ratio(name) >= BARS[name] else 'missed'}" if name in BARS else ""
        )
        ratios = [f"{main_point.ratio(name):.1f} x", bar, f"{main_point.typical(name):.1f} x"]
        detail.append("| " + " | ".join([name, *walls, *ratios, f"{timing.masked:.1%}"]) + " |")
    passed = [f"{name}: {crossing(points, name)}" for name in names[1:] if crossing(points, name)]
    by_median, by_sums = expected(main_point.generation)
    sampled = lockstep.sampled / (PROMPTS * GROUP)
    return f"""# Waiting for tools, by schedule

A batch is {PROMPTS} prompts x {GROUP} attempts, {lockstep.calls:.2f} calls and {sampled:.0f} sampled tokens a
trajectory. Heavy-tailed latencies are lognormal with p99 at 40 times the median, not cut at any length; constant ones
are all alike; all schedules meet the same prompts, seeds and latencies. Lockstep with serial calls takes the generation
({main_point.generation:.2f} s a batch in lockstep) and every latency in turn: computed, and really slept through once
at 50 ms ({check}). No schedule updates the weights, but for the one that says so.

Mean seconds a batch, and the ratio to lockstep with serial calls, of the sums over all batches:

| latency (median) | tool s / generation s | lockstep, serial | {" | ".join(names)} |
|{"---|" * (3 + len(names))}
{chr(10).join(rows)}

The ratio passes {LANDMARK} where tools take this many times as long as generation (heavy-tailed):
{"; ".join(passed) or "not between the measured points"}.

At 50 ms heavy-tailed (p99 2 s), {batches} batches, with a staleness {2 * batches}:

| | s a batch, min | median | mean | max | ratio of sums | bar | typical ratio | masked |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(detail)}

The bar is held against the ratio of sums over all batches, the first and the last ones included, when few groups are
under way. On-policy, a batch cannot end before its slowest trajectory, so one draw of some 250 decides, and the sums
are ruled by the longest draws: from the latencies alone ({SIMULATED} simulated batches) one expects {by_sums:.1f} x of
the sums and {by_median:.1f} x as the median. With a staleness of k, k + 1 batches are under way, and an update waits
for a slow group only when the group would become older than k versions. With a deadline the spoilt trajectories are
left out of the update.

![mean seconds a batch](overlap.svg)

Made by `{" ".join(["python benchmarks/overlap.py", *sys.argv[1:]])}` on {describe()}, one process, one thread.
"""


def crossing(points: list[Point], name: str) -> str:
    """Where the ratio passes the landmark, between two measured points."""
    curve = sorted((p.tool_share, p.ratio(name)) for p in points if p.latency.kind == "heavy-tailed")
    for (x0, y0), (x1, y1) in pairwise(curve):
        if y0 < LANDMARK <= y1:
            return f"{x0 + (x1 - x0) * (LANDMARK - y0) / (y1 - y0):.0f}"
    return ""


def plot(points: list[Point], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharex=True, sharey=True)
    for axis, kind in zip(axes, ("heavy-tailed", "constant"), strict=True):
        chosen = sorted((p for p in points if p.latency.kind == kind), key=lambda p: p.tool_share)
        x = [p.tool_share for p in chosen]
        axis.plot(x, [mean(p.serial("on-policy")) for p in chosen], "o-", label="lockstep, serial")
        for name in SCHEDULES:
            axis.plot(x, [mean(p.timings[name].walls) for p in chosen], "o-", label=name)
        axis.set(xscale="log", yscale="log", title=f"{kind} latency", xlabel="tool seconds / generation seconds")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("mean seconds a batch")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
