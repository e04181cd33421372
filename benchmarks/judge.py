"""What a model judge costs beside its server: judgements a second, and how much of its time the rollout hides.

    python benchmarks/judge.py            # writes benchmarks/results/judge.md

**Throughput.** The same trajectories are judged twice at the same concurrency, in turns within one run: by the reward
``judge`` in mode outcome (its rubric rendered, the service asked, the reply read, nothing remembered), and by a bare
httpx client that posts the bodies which the service would send, made beforehand, and does not look at the replies. The
bar is the ratio of judgements a second in neighbouring rounds, ours to the bare client's; its median.

One server is `transformers serve` with a tiny random model. The other is a process of our own (`loopback`) that answers
after a while, however many ask: half to one and a half times a mean that is drawn from the request's bytes, so that
both sides wait alike. At 0.5 s the server is what one waits for, as with a real judge, and the bar is held. At 20 ms
and 64 at once one waits for the client's own work, which the CPU time of a judgement shows beside it: no bar.

**Overlap.** The embedded engine rolls out batches of 16 prompts x 8 attempts with the search task's tiny model, whose
tools take a heavy-tailed time, once without and once with a judge beside the task's own reward. Then the same batch is
scored again after its last rollout has ended, all at once. With

    extra  = seconds of the batch with the judge - seconds of the batch without it
    behind = seconds that scoring takes when it starts only after the last rollout has ended

the hidden share is 1 - sum of extra / sum of behind, over all batches; the bar is held against it. It charges to the
judge also what its client takes from generation in the same process. The overlapped share is another figure, and a
kinder one: of all seconds of scoring, summed over trajectories (`Score.seconds`), those before the last rollout's end.

The attempt that ends last is judged last, and nothing hides that: for a server with so many slots of a fixed time, the
hidden share is at best 1 - slots / judgements of a batch. So one with a slot for each request stands there, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import httpx
import torch
from judge_overlap import BAR_HIDDEN, TOOL_MOST_S, TOOL_S, VOTES, measure_overlap
from loopback import MAX_TOKENS, loopback_server
from machine import MINIATURE, describe, finish, publish
from rlfactory_judge.demo.server import local_server
from rlfactory_judge.forms import ScoreForm, UnreadableError
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.rubric import Rubric
from rlfactory_judge.scoring.judge import OutcomeJudge
from rlfactory_judge.service.service import JudgeService

from rlfactory_core.types import Message, Sample, StopReason, ToolCall, ToolResult, Trajectory, Turn

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from tiny_judge import tiny_judge  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "judge.md"
BAR_RATIO = 0.95


def attempt(number: int) -> Trajectory:
    """Two searches and an answer; no two attempts are alike."""
    passage = (
        f"Passage {number}. " + "The river rises in the hills north of the town and meets the sea at the old port. " * 6
    )
    turns = []
    for step in range(2):
        call = ToolCall(
            f"call_{step}", "search", "", {"query": f"Where does river {number} meet the sea, part {step}?"}
        )
        said = Message("assistant", f"I look for river {number}.", tool_calls=(call,))
        turns.append(Turn((), (1,), (0.0,), said, (ToolResult(call.id, "search", passage),)))
    said = Message("assistant", f"It meets the sea there. <answer>the old port {number}</answer>")
    turns.append(Turn((), (1,), (0.0,), said))
    sample = Sample(f"river-{number}", f"Where does river {number} meet the sea?", f"the old port {number}")
    return Trajectory(sample, 0, tuple(turns), StopReason.FINAL_ANSWER)


@dataclass(frozen=True, slots=True)
class Load:
    """What one server is asked: so many judgements at so many at once, in so many pairs of rounds."""

    server: str
    url: str
    model: str
    at_once: int
    judgements: int
    rounds: int
    has_bar: bool


@dataclass(frozen=True, slots=True)
class Round:
    """Judgements a second, milliseconds of this process's CPU for each, and how many could be read."""

    rate: float
    cpu_ms: float
    read: int


async def timed(some: Sequence[Any], at_once: int, one: Callable[[Any], Awaitable[bool]]) -> Round:
    left = iter(some)

    async def work() -> int:
        return sum([await one(each) for each in left])

    began, cpu = time.perf_counter(), time.process_time()
    read = sum(await asyncio.gather(*(work() for _ in range(at_once))))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Round(len(some) / seconds, cpu / len(some) * 1e3, read)


async def throughput(load: Load) -> tuple[list[Round], list[Round]]:
    """Rounds of ours and of the bare client, in turns."""
    options = JudgeOptions(
        url=load.url, model=load.model, output="text", cache="off", max_tokens=MAX_TOKENS, concurrency=load.at_once
    )
    rubric = Rubric.load("correctness", "outcome")
    judge = OutcomeJudge(options, rubric, JudgeService(options))
    some = [attempt(number) for number in range(load.judgements)]
    bodies = [body(rubric, options, each) for each in some]
    limits = httpx.Limits(max_connections=load.at_once, max_keepalive_connections=load.at_once)
    headers = {"Content-Type": "application/json"}

    async def ours(trajectory: Trajectory) -> bool:
        try:
            await judge.score(trajectory)
        except UnreadableError:
            return False
        return True

    async def bare(content: str) -> bool:
        response = await client.post("/chat/completions", content=content)
        return response.status_code == httpx.codes.OK

    rounds: tuple[list[Round], list[Round]] = ([], [])
    async with httpx.AsyncClient(base_url=load.url, headers=headers, limits=limits, timeout=None) as client:
        await judge.service.open()
        try:
            few = min(load.at_once, load.judgements)
            await timed(some[:few], load.at_once, ours)  # connections
            await timed(bodies[:few], load.at_once, bare)
            for number in range(load.rounds):
                if number % 2:
                    rounds[0].append(await timed(some, load.at_once, ours))
                rounds[1].append(await timed(bodies, load.at_once, bare))
                if not number % 2:
                    rounds[0].append(await timed(some, load.at_once, ours))
        finally:
            await judge.service.close()
    return rounds


def body(rubric: Rubric, options: JudgeOptions, trajectory: Trajectory) -> str:
    """The request that the service sends."""
    question = rubric.question(trajectory, ScoreForm(options.low, options.high))
    messages = [{"role": "system", "content": question.system}, {"role": "user", "content": question.user}]
    return json.dumps(
        {"model": options.model, "messages": messages, "temperature": 0.0, "max_tokens": options.max_tokens}
    )


def loads(local: str, real: str, model: str) -> list[Load]:
    slow, fast = f"{local}/0.5/0.5/4096/v1", f"{local}/0.02/0.5/4096/v1"
    own = {
        "0.5 s": (slow, True, ((1, 4), (16, 64), (64, 256))),
        "20 ms": (fast, False, ((1, 48), (16, 256), (64, 256))),
    }
    if MINIATURE:
        return [
            Load("20 ms", fast, "judge", 2, 4, 1, has_bar=False),
            Load("real", real, model, 1, 2, 1, has_bar=False),
        ]
    made = [
        Load(name, url, "judge", at_once, number, 3, has_bar)
        for name, (url, has_bar, sizes) in own.items()
        for at_once, number in sizes
    ]
    sizes = ((1, 32), (16, 96), (64, 128))
    name = "transformers serve"
    return made + [Load(name, real, model, at, number, 5, has_bar=True) for at, number in sizes]


async def measure_throughput(local: str, scratch: Path) -> tuple[list[str], bool]:
    """Rows of the table, and whether all bars are met."""
    rows, good = [], True
    model = tiny_judge(scratch / "judge")
    async with local_server(model) as real, httpx.AsyncClient() as client:
        await client.get(f"{local}/bodies")  # forgets those before
        for load in loads(local, real, str(model)):
            ours, bare = await throughput(load)
            if load.model == "judge":
                bodies = (await client.get(f"{local}/bodies")).json()["distinct"]
                assert bodies == load.judgements + 1, "the bare client posts the service's bodies; one is the probe"
            ratios = sorted(a.rate / b.rate for a, b in zip(ours, bare, strict=True))
            ratio = statistics.median(ratios)
            met = ratio >= BAR_RATIO
            good &= met or not load.has_bar
            rates, cpu = (
                [f"{statistics.median(getattr(each, name) for each in side):.{digits}f}" for side in (ours, bare)]
                for name, digits in (("rate", 1), ("cpu_ms", 2))
            )
            bar = ("met" if met else "missed") if load.has_bar else "none"
            cells = [load.server, load.at_once, f"{load.rounds} x {load.judgements}", ours[0].read, *rates]
            cells += [f"{ratio:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})", bar, *cpu]
            rows.append("| " + " | ".join(map(str, cells)) + " |")
            print(rows[-1], file=sys.stderr, flush=True)
    return rows, good


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, loopback_server() as local:
        hidden, overlaps = asyncio.run(measure_overlap(local, Path(folder)))
        speeds, fast = asyncio.run(measure_throughput(local, Path(folder)))
    publish(RESULTS, report(speeds, hidden))
    print(f"bars: {'met' if fast and overlaps else 'missed'}", file=sys.stderr)
    finish(held=fast and overlaps)


def report(speeds: Sequence[str], hidden: Sequence[str]) -> str:
    return f"""# What a model judge costs beside its server

`python benchmarks/judge.py`; its docstring says what is measured and how.

## Judgements a second

The same {MAX_TOKENS} tokens of reply are asked for by the reward `judge` (mode outcome, rubric `correctness`, no cache)
and by a bare httpx client that posts the same bytes, made beforehand, and reads no reply; in turns, on one server.
"0.5 s" and "20 ms" are the mean time of a loopback server that takes any number of requests at once; the last is a real
server with a tiny random model, whose noise is no score: the service reads it, says so, and the judgement counts as
made. Ratio: of neighbouring rounds, median (least to most). Bar: at least {BAR_RATIO:g} where the server is what one
waits for. CPU: of the client's process for one judgement.

| server | at once | judgements | of a round, read | ours, 1/s | bare, 1/s | ratio | bar | ours, CPU ms | bare, CPU ms |
|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(speeds)}

The bare client keeps its connections in one pool, as httpx is mostly used, and httpx goes through all of a pool's
connections for each request; ours has several small pools. At 20 ms and 64 at once nobody waits for the server, and
the clients' processes are busy all the time; a judge that answers in so little time is no language model.

## Hidden behind the rollout

Batches of 16 prompts x 8 attempts in the embedded engine, the search task with calls of a heavy-tailed time (median
{TOOL_S:g} s, most {TOOL_MOST_S:g} s) and {VOTES} votes of the judge on each attempt. Means over batches, in seconds.
"After" is how long scoring takes when it starts once the last rollout has ended; the hidden share is 1 - extra / after,
and the bar, where the judge is not the bottleneck, {BAR_HIDDEN:.0%}. Equal questions of a batch (many, with a tiny
model) are asked once, in both. The judge is the loopback server with so many slots; at most 64 requests, the default,
are under way at once.

| slots | s each | batches | asked | without judge | with | extra | after | hidden | bar | scoring, sum | overlapped |
|---|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(hidden)}

The first judge keeps up with the rollout. The second answers as many at once as are asked, so that there is little to
hide, and what is left is the judgement of the attempt that ends last, which nothing on-policy can hide. The third is
the bottleneck: the batch waits for it. "Overlapped" is the share of all seconds of scoring, summed over trajectories,
that lie before the end of the last rollout.

Machine: {describe("httpx")}.
"""


if __name__ == "__main__":
    main()
