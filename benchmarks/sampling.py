"""Attempts and seconds until the search task is learnt, with refill and prompts by difficulty and without: seeds 0-4.

    python benchmarks/sampling.py                 # writes benchmarks/results/sampling.md

Each run ends when its held-out success at temperature 1 is 0.9, which is measured every 5 steps, or after the demo's
120 steps. Both runs of a seed start from the same warm-started model. The attempts of groups that are replaced count,
those of evaluations do not. The bar stands below; the script exits with 1 where a seed misses it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from machine import describe
from seeds import measure_seeds, run_plugin

BAR = 0.6  # of the attempts and of the seconds
GOAL = "sampled/exact_match"
KEYS = (
    f"train.until.{GOAL}=0.9",
    "train.until.exact_match=null",  # the demo's other goal
    "eval.every=5",
    "train.workers=1",
)
CHOSEN = ("train.refill=true", "train.prompts=difficulty")


@dataclass(frozen=True)
class Cost:
    """What one run took; ``reached`` is False if it ended before the goal."""

    attempts: int
    steps: int
    seconds: float  # of the steps, without the warm start and the evaluations
    reached: bool

    @classmethod
    def of(cls, out: Path) -> Cost:
        found = json.loads((out / "summary.json").read_text())
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        seconds = sum(row["rollout_wait_s"] + row["update_s"] for row in rows)
        return cls(found["trajectories"], found["steps"], seconds, found["ended"]["by"] == "until")


@dataclass(frozen=True)
class Pair:
    """Both runs of a seed."""

    seed: int
    plain: Cost
    chosen: Cost

    @property
    def ratios(self) -> tuple[float, float]:
        """Of attempts and of seconds."""
        return self.chosen.attempts / self.plain.attempts, self.chosen.seconds / max(self.plain.seconds, 1e-9)

    @property
    def held(self) -> bool:
        return self.chosen.reached and max(self.ratios) <= BAR


def run(seed: int, scratch: Path) -> Pair:
    plain = run_plugin("search", seed, scratch, "plain", *KEYS)[1]
    chosen = run_plugin("search", seed, scratch, "chosen", *KEYS, *CHOSEN)[1]
    return Pair(seed, Cost.of(plain), Cost.of(chosen))


def report(pairs: Sequence[Pair], command: str) -> str:
    rows = [
        "| seed | attempts | seconds | steps | attempts, chosen | seconds | steps | ratio of attempts | of seconds |"
    ]
    rows.append("|---" * 9 + "|")
    for pair in pairs:
        cells = [cell for cost in (pair.plain, pair.chosen) for cell in _cells(cost)]
        rows.append(f"| {pair.seed} | " + " | ".join([*cells, *(f"{ratio:.2f}" for ratio in pair.ratios)]) + " |")
    medians = [median(column) for column in zip(*(pair.ratios for pair in pairs), strict=True)]
    rows.append(f"| median | | | | | | | {medians[0]:.2f} | {medians[1]:.2f} |")
    total = sum(pair.chosen.attempts for pair in pairs) / sum(pair.plain.attempts for pair in pairs)
    rows.append(f"| sums | | | | | | | {total:.2f} | |")
    rows.append(f"| bar | | | | | | | ≤ {BAR:g} | ≤ {BAR:g} |")
    return (
        "# Refill and difficulty against neither\n\n"
        "Until held-out success at temperature 1 is 0.9 on the search task: first without, then with\n"
        f"`{' '.join(CHOSEN)}`. It is measured every 5 steps by 200 samples, twice each, so with a\n"
        "standard error of 0.015. Seconds are those of rollouts and updates. >: the goal was not reached.\n\n"
        + "\n".join(rows)
        + f"\n\nMade by `{command}` on {describe()}. One process, one thread.\n"
    )


def _cells(cost: Cost) -> list[str]:
    sign = "" if cost.reached else "> "
    return [f"{sign}{cost.attempts:,}", f"{sign}{cost.seconds:.0f}", f"{sign}{cost.steps}"]


if __name__ == "__main__":
    measure_seeds(__file__, __doc__ or "", run, report, seeds=range(5))
