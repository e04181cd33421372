"""The main job, five times: ``rlfactory run --plugin search`` with an empty cache, seeds 0-4, and whether it learnt.

    python benchmarks/search_learns.py            # writes benchmarks/results/search_learns.md

Each run is the whole command in a process of its own, warm start included. With ``--beside CHECKOUT`` each seed is also
run with the code of another commit, in turns, and the page is results/search_beside.md. The bars stand below; the
script exits with 1 where a seed misses one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from machine import describe
from seeds import Took, measure_seeds, time_plugin


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
FASTER = 0.45  # of the seconds of commit 2c342db, before a training could end early
BARS = (
    Bar("greedy, after", "after", "exact_match", at_least=0.95),
    Bar("two-hop, before", "before", "exact_match/two_hop", at_most=0.10),
    Bar("two-hop, after", "after", "exact_match/two_hop", at_least=0.85),
    Bar("T=1, before", "before", "sampled/exact_match", at_most=0.35),
    Bar("T=1, after", "after", "sampled/exact_match", at_least=0.9),
    Bar("search finds nothing", "after", "control/no_results/exact_match", at_most=0.05),
)


@dataclass(frozen=True)
class Run:
    """One seed: what the command took, ``eval`` of its summary, and what the other commit took."""

    seed: int
    took: Took
    evaluations: dict[str, dict[str, float]]
    beside: Took | None

    @property
    def values(self) -> list[float]:
        return [self.evaluations[bar.when][bar.key] for bar in BARS]

    @property
    def within(self) -> list[bool]:
        """Whether it meets each bar, the one on its seconds first."""
        return [self.took.wall <= SECONDS, *(bar.holds(value) for bar, value in zip(BARS, self.values, strict=True))]

    @property
    def held(self) -> bool:
        return all(self.within) and (self.beside is None or self.took.wall <= FASTER * self.beside.wall)


def run(beside: Path | None, seed: int, scratch: Path) -> Run:
    other = time_plugin("search", seed, scratch, "beside", checkout=beside.absolute())[0] if beside else None
    took, out = time_plugin("search", seed, scratch, "run")
    return Run(seed, took, json.loads((out / "summary.json").read_text())["eval"], other)


def report(beside: Path | None, runs: Sequence[Run], command: str) -> str:
    rows = ["| seed | seconds | " + " | ".join(bar.title for bar in BARS) + " |", "|---" * (len(BARS) + 2) + "|"]
    for one in runs:
        cells = [f"{one.took.wall:.0f}", *(f"{value:.3f}" for value in one.values)]
        shown = [cell if met else f"**{cell}**" for cell, met in zip(cells, one.within, strict=True)]
        rows.append(f"| {one.seed} | " + " | ".join(shown) + " |")
    rows.append(f"| bar | ≤ {SECONDS:.0f} | " + " | ".join(bar.text for bar in BARS) + " |")
    return (
        "# `rlfactory run --plugin search` from an empty cache\n\n"
        "Held-out exact match over 200 questions (100 of one hop, 100 of two) of a world that is used for nothing\n"
        'else. "Before" is the warm-started model without GRPO; "search finds nothing" the trained model with a tool\n'
        "that answers every query with no results. Bold: the bar is missed.\n\n"
        + "\n".join(rows)
        + (_comparison(beside, runs) if beside else "")
        + f"\n\nMade by `{command}{f' --beside {commit(beside)}' if beside else ''}` on {describe()}.\n"
    )


def _comparison(beside: Path, runs: Sequence[Run]) -> str:
    """A table of the seconds of both commits."""
    rows = ["| seed | seconds, before | now | ratio | processor seconds, before | now | ratio |", "|---" * 7 + "|"]
    pairs = [(one, one.beside) for one in runs if one.beside is not None]
    for one, other in pairs:
        seconds = f"{other.wall:.0f} | {one.took.wall:.0f} | {one.took.wall / other.wall:.2f}"
        processor = f"{other.cpu:.0f} | {one.took.cpu:.0f} | {one.took.cpu / other.cpu:.2f}"
        rows.append(f"| {one.seed} | {seconds} | {processor} |")
    wall = median(one.took.wall / other.wall for one, other in pairs)
    cpu = median(one.took.cpu / other.cpu for one, other in pairs)
    rows.append(f"| median | | | {wall:.2f} | | | {cpu:.2f} |")
    rows.append(f"| bar | | | ≤ {FASTER:g} | | | |")
    return f"\n\nBeside commit {commit(beside)}, in turns:\n\n" + "\n".join(rows)


def commit(checkout: Path) -> str:
    """Of a checkout of this repository."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--abbrev=10", "--exclude=*"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--beside", type=Path, help="a checkout of another commit, which is run in turns")
    other = options.parse_known_args()[0].beside
    page = "search_beside" if other else ""
    parts = partial(run, other), partial(report, other)
    measure_seeds(__file__, __doc__ or "", *parts, seeds=range(5), options=[options], page=page)
