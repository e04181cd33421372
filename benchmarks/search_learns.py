"""The main job, five times: ``rlfactory run --plugin search`` with an empty cache, seeds 0-4, and whether it learnt.

    python benchmarks/search_learns.py            # writes benchmarks/results/search_learns.md

Each run is the whole command in a process of its own, warm start included. The bar stands below; the script exits
with 1 where a seed misses it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from machine import describe
from seeds import measure_seeds, run_plugin


@dataclass(frozen=True)
class Bar:
    """One figure and what it has to be."""

    title: str
    when: str  # before or after
    key: str
    at_least: float = float("-inf")
    at_most: float = float("inf")

    @property
    def text(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least > 0 else f"≤ {self.at_most:g}"

    def holds(self, value: float) -> bool:
        return self.at_least <= value <= self.at_most


SECONDS = 180.0
BARS = (
    Bar("greedy, after", "after", "exact_match", at_least=0.90),
    Bar("two-hop, before", "before", "exact_match/two_hop", at_most=0.10),
    Bar("two-hop, after", "after", "exact_match/two_hop", at_least=0.85),
    Bar("T=1, before", "before", "sampled/exact_match", at_most=0.35),
    Bar("T=1, after", "after", "sampled/exact_match", at_least=0.85),
    Bar("search finds nothing", "after", "control/no_results/exact_match", at_most=0.05),
)


@dataclass(frozen=True)
class Run:
    """One seed: wall seconds of the command, and ``eval`` of its summary."""

    seed: int
    seconds: float
    evaluations: dict[str, dict[str, float]]

    @property
    def values(self) -> list[float]:
        return [self.evaluations[bar.when][bar.key] for bar in BARS]

    @property
    def within(self) -> list[bool]:
        """Whether it meets each bar, the one on its seconds first."""
        return [self.seconds <= SECONDS, *(bar.holds(value) for bar, value in zip(BARS, self.values, strict=True))]

    @property
    def held(self) -> bool:
        return all(self.within)


def run(seed: int, scratch: Path) -> Run:
    seconds, out = run_plugin("search", seed, scratch)
    return Run(seed, seconds, json.loads((out / "summary.json").read_text())["eval"])


def report(runs: Sequence[Run], command: str) -> str:
    rows = ["| seed | seconds | " + " | ".join(bar.title for bar in BARS) + " |", "|---" * (len(BARS) + 2) + "|"]
    for one in runs:
        cells = [f"{one.seconds:.0f}", *(f"{value:.3f}" for value in one.values)]
        shown = [cell if met else f"**{cell}**" for cell, met in zip(cells, one.within, strict=True)]
        rows.append(f"| {one.seed} | " + " | ".join(shown) + " |")
    rows.append(f"| bar | ≤ {SECONDS:.0f} | " + " | ".join(bar.text for bar in BARS) + " |")
    return (
        "# `rlfactory run --plugin search` from an empty cache\n\n"
        "Held-out exact match over 200 questions (100 of one hop, 100 of two) of a world that is used for nothing\n"
        'else. "Before" is the warm-started model without GRPO; "search finds nothing" the trained model with a tool\n'
        "that answers every query with no results. Bold: the bar is missed.\n\n"
        + "\n".join(rows)
        + f"\n\nMade by `{command}` on {describe()}.\n"
    )


if __name__ == "__main__":
    measure_seeds(__file__, __doc__ or "", run, report, seeds=range(5))
