"""How much of a judge's time the rollout hides: the second half of `judge`, whose docstring says what is measured."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopback import MAX_TOKENS
from machine import sized
from overlap import Latency, SlowTool, is_two_hop
from parts import local_run, play_batch, save, trainer_of, warm_started
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.rubric import Rubric
from rlfactory_judge.scoring.judge import OutcomeJudge
from rlfactory_judge.service.service import JudgeService

from rlfactory_core.context import ToolContext
from rlfactory_core.protocols import Model
from rlfactory_core.rewards.layer import GroupScoring, RewardLayer
from rlfactory_core.rollout import Episode
from rlfactory_core.tasks.runtime import TaskRuntime
from rlfactory_core.training.loop import Loop
from rlfactory_core.training.run import OpenRun
from rlfactory_core.types import Group, Trajectory

BAR_HIDDEN = 0.90
TOOL_S, TOOL_MOST_S = sized((0.2, 5.0), (0.01, 0.1))  # the median of the heavy-tailed time of a call, and its most
VOTES = 3  # of the judge on each attempt, in a batch


@dataclass
class CutLatency(Latency):
    """As `overlap.Latency`, but no call takes longer than `TOOL_MOST_S`."""

    def draw(self, context: ToolContext) -> float:
        return min(super().draw(context), TOOL_MOST_S)


@dataclass(frozen=True, slots=True)
class Judge:
    """A server with so many slots, each taking so many seconds for a judgement."""

    slots: int
    seconds: float
    batches: int
    has_bar: bool

    def url(self, local: str) -> str:
        return f"{local}/{self.seconds}/0/{self.slots}/v1"


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch, all times in seconds."""

    plain: float  # without the judge
    judged: float
    behind: float  # scoring, when it starts after the last rollout has ended
    scoring: float  # summed over trajectories
    overlapped: float  # of this, before the last rollout's end
    asked: int  # requests to the judge


JUDGES = sized(
    (Judge(8, 0.2, 3, has_bar=True), Judge(64, 0.2, 2, has_bar=False), Judge(3, 0.2, 1, has_bar=False)),
    (Judge(64, 0.02, 1, has_bar=False),),
)


def options_of(judge: Judge, local: str) -> dict[str, Any]:
    """Equal questions of a batch are asked once, whether they come together or not."""
    who = {"url": judge.url(local), "model": "judge", "output": "text", "max_tokens": MAX_TOKENS}
    return {**who, "votes": VOTES, "cache": "memory"}


async def warmed_up(local: OpenRun, latency: CutLatency) -> Loop:
    trainer = trainer_of(local, [], is_two_hop)
    await play_batch(trainer, 100)  # without waiting, of prompts that are not measured
    latency.scale = TOOL_S
    return trainer


async def score_behind(groups: Sequence[Group], options: dict[str, Any]) -> float:
    """Seconds of scoring what has ended, all at once, by a judge that remembers nothing yet."""
    read = JudgeOptions(**options)
    judge = OutcomeJudge(read, Rubric.load("correctness", "outcome"), JudgeService(read))
    await judge.service.open()
    try:
        layer = RewardLayer({"judge": (judge, 1.0)})
        began = time.perf_counter()
        await asyncio.gather(*map(layer.score_group, groups))
        return time.perf_counter() - began
    finally:
        await judge.service.close()


class Rollouts:
    """Notes when trajectories end: that is when their scoring begins."""

    def __init__(self, runtime: TaskRuntime) -> None:
        self._rollout = runtime.rollout
        self.ended: dict[tuple[str, int], float] = {}
        runtime.rollout = self.rollout  # type: ignore[method-assign]

    async def rollout(self, episode: Episode, model: Model, scoring: GroupScoring | None = None) -> Trajectory:
        trajectory = await self._rollout(episode, model)
        self.ended[episode.sample.id, episode.attempt] = time.perf_counter()
        return trajectory if scoring is None else await scoring.score(episode.attempt, trajectory)


async def overlap(judge: Judge, local: str, model: Path, scratch: Path) -> list[Batch]:
    options = options_of(judge, local)
    rewards = [{"name": "exact_match", "weight": 1.0}, {"name": "judge", "weight": 0.5, **options}]
    tools = {"concurrency": 512, "total_concurrency": 512, "deadline_s": 60.0, "retries": 0}
    batches = []
    slow, slow_too = CutLatency("heavy-tailed", 0.0), CutLatency("heavy-tailed", 0.0)
    async with (
        local_run(model, scratch / "plain", tool=lambda tool: SlowTool(tool, slow), tools=tools) as plain,
        local_run(
            model, scratch / "judged", tool=lambda tool: SlowTool(tool, slow_too), tools=tools, rewards=rewards
        ) as judged,
    ):
        bare, ours = await warmed_up(plain, slow), await warmed_up(judged, slow_too)
        rollouts = Rollouts(judged.tasks.only)
        for step in range(1, judge.batches + 1):
            without = 0.0 if step % 2 else (await play_batch(bare, step))[1]
            rollouts.ended.clear()
            groups, seconds = await play_batch(ours, step)
            ends = dict(rollouts.ended)
            without = without or (await play_batch(bare, step))[1]
            behind = await score_behind(groups, options)
            last = max(ends.values())
            scored = [(ends[one.sample.id, one.attempt], one.score) for group in groups for one in group.trajectories]
            known = [(end, score) for end, score in scored if score is not None]
            batches.append(
                Batch(
                    without,
                    seconds,
                    behind,
                    sum(score.seconds for _, score in known),
                    sum(min(score.seconds, last - end) for end, score in known),
                    round(sum(score.counts.get("judge.requests", 0.0) for _, score in known)),
                )
            )
            print(batches[-1], file=sys.stderr, flush=True)
    return batches


def overlap_row(judge: Judge, batches: Sequence[Batch]) -> tuple[str, bool]:
    def mean(name: str) -> float:
        return float(statistics.mean(getattr(batch, name) for batch in batches))

    extra = mean("judged") - mean("plain")
    hidden = 1.0 - extra / mean("behind")
    met = hidden >= BAR_HIDDEN
    cells = [judge.slots, f"{judge.seconds:g}", len(batches), f"{mean('asked'):.0f}"]
    cells += [f"{mean(name):.2f}" for name in ("plain", "judged")]
    cells += [f"{extra:.2f}", f"{mean('behind'):.2f}", f"{hidden:.1%}"]
    cells += [("met" if met else "missed") if judge.has_bar else "none"]
    cells += [f"{mean('scoring'):.1f}", f"{mean('overlapped') / mean('scoring'):.1%}"]
    return "| " + " | ".join(map(str, cells)) + " |", met or not judge.has_bar


async def measure_overlap(local: str, scratch: Path) -> tuple[list[str], bool]:
    """Rows of the table, and whether all bars are met."""
    model = save(scratch / "model", *warm_started(clean=True))
    rows, good = [], True
    for number, judge in enumerate(JUDGES):
        row, met = overlap_row(judge, await overlap(judge, local, model, scratch / f"overlap-{number}"))
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
        good &= met
    return rows, good
