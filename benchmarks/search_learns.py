"""The main job, five times: ``rlfactory run --plugin search`` with an empty cache, seeds 0-4, and whether it learnt.

    python benchmarks/search_learns.py            # writes benchmarks/results/search_learns.md

Each run is the whole command in a process of its own, warm start included. The bar stands below; the script exits
with 1 where a seed misses it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from machine import describe

RESULTS = Path(__file__).parent / "results" / "search_learns.md"


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


def run(seed: int, scratch: Path) -> tuple[float, dict[str, dict[str, float]]]:
    """Wall seconds of the command, and ``eval`` of its summary."""
    out = scratch / f"run-{seed}"
    command = [
        sys.executable,
        "-m",
        "rlfactory_core",
        "run",
        "--plugin",
        "search",
        "--seed",
        str(seed),
        "--out",
        str(out),
    ]
    start = time.perf_counter()
    subprocess.run(command, check=True, env={**os.environ, "RLFACTORY_CACHE": str(scratch / f"cache-{seed}")})
    seconds = time.perf_counter() - start
    evaluations: dict[str, dict[str, float]] = json.loads((out / "summary.json").read_text())["eval"]
    return seconds, evaluations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    seeds = parser.parse_args().seeds
    rows = ["| seed | seconds | " + " | ".join(bar.title for bar in BARS) + " |", "|---" * (len(BARS) + 2) + "|"]
    missed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for seed in seeds:
            seconds, evaluations = run(seed, Path(scratch))
            values = [evaluations[bar.when][bar.key] for bar in BARS]
            held = [seconds <= SECONDS, *(bar.holds(value) for bar, value in zip(BARS, values, strict=True))]
            missed += not all(held)
            cells = [f"{seconds:.0f}", *(f"{value:.3f}" for value in values)]
            rows.append(
                f"| {seed} | " + " | ".join(c if ok else f"**{c}**" for c, ok in zip(cells, held, strict=True)) + " |"
            )
    rows.append(f"| bar | ≤ {SECONDS:.0f} | " + " | ".join(bar.text for bar in BARS) + " |")
    command = "python benchmarks/search_learns.py" + (
        "" if len(seeds) == 5 else " --seeds " + " ".join(map(str, seeds))
    )
    text = (
        "# `rlfactory run --plugin search` from an empty cache\n\n"
        "Held-out exact match over 200 questions (100 of one hop, 100 of two) of a world that is used for nothing\n"
        'else. "Before" is the warm-started model without GRPO; "search finds nothing" the trained model with a tool\n'
        "that answers every query with no results. Bold: the bar is missed.\n\n"
        + "\n".join(rows)
        + f"\n\nMade by `{command}` on {describe()}.\n"
    )
    RESULTS.write_text(text)
    sys.stdout.write(text)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
