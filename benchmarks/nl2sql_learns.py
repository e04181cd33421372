"""``rlfactory run --plugin nl2sql`` with an empty cache, three times: whether it learns to look at the schema.

    python benchmarks/nl2sql_learns.py            # writes benchmarks/results/nl2sql_learns.md

Each run is the whole command in a process of its own, warm start included. The bars stand below; the script exits
with 1 where a seed misses one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

from machine import describe, sized
from seeds import measure_seeds, run_plugin

SECONDS = 300.0
RISE = 0.3  # of held-out execution accuracy, greedy and at temperature 1
WITHOUT = 0.1  # at most, where the tools know nothing
PLUGIN = sized("nl2sql", str(Path(__file__).with_name("short_nl2sql.py")))
KINDS = ("filter", "count", "aggregate", "order", "group", "join")


@dataclass(frozen=True)
class Run:
    """What one run's folder says. ``curve``: step -> held-out accuracy, greedy."""

    seed: int
    seconds: float
    before: dict[str, float]
    after: dict[str, float]
    curve: dict[int, float]

    @property
    def held(self) -> bool:
        rises = (self.after[key] - self.before[key] for key in ("execution", "sampled/execution"))
        return self.seconds <= SECONDS and min(rises) >= RISE and self.without <= WITHOUT

    @property
    def without(self) -> float:
        return self.after["control/no_database/execution"]


def run(seed: int, scratch: Path) -> Run:
    seconds, out = run_plugin(PLUGIN, seed, scratch)
    evaluations = json.loads((out / "summary.json").read_text())["eval"]
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    curve = {step["step"]: step["eval/execution"] for step in steps if "eval/execution" in step}
    return Run(seed, seconds, evaluations["before"], evaluations["after"], curve)


def report(runs: Sequence[Run], command: str) -> str:
    head = "| seed | seconds | before | after | T=1, before | T=1, after | tools that know nothing |"
    rows = [head, "|---" * 7 + "|"]
    for one in runs:
        cells = [one.before["execution"], one.after["execution"], one.before["sampled/execution"]]
        cells += [one.after["sampled/execution"], one.without]
        mark = "" if one.held else "**"
        rows.append(
            f"| {mark}{one.seed}{mark} | {one.seconds:.0f} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |"
        )
    steps = sorted({step for one in runs for step in one.curve})
    curve = ["| seed | " + " | ".join(f"step {step}" for step in (0, *steps)) + " |", "|---" * (len(steps) + 2) + "|"]
    kinds = ["| seed | " + " | ".join(KINDS) + " |", "|---" * (len(KINDS) + 1) + "|"]
    for one in runs:
        points = [one.before["execution"], *(one.curve.get(step, nan) for step in steps)]
        curve.append(f"| {one.seed} | " + " | ".join(f"{point:.3f}" for point in points) + " |")
        kinds.append(
            f"| {one.seed} | " + " | ".join(f"{one.after.get(f'execution/{kind}', nan):.3f}" for kind in KINDS) + " |"
        )
    return (
        "# `rlfactory run --plugin nl2sql` from an empty cache\n\n"
        "Held-out execution accuracy over 192 questions, 32 of each kind, about 8 databases that are used for nothing\n"
        'else; greedy, and sampled at temperature 1. "Before" is the warm-started model without GRPO, "tools that\n'
        'know nothing" the trained model whose tools find no tables. Bold: a bar is missed (a rise of at\n'
        f"least {RISE:g}, both greedy and at temperature 1; at most {WITHOUT:g} without the tools' answers; at most "
        f"{SECONDS:.0f} seconds).\n\n"
        + "\n".join(rows)
        + "\n\nThe curve, greedy:\n\n"
        + "\n".join(curve)
        + "\n\nAfter training, by kind of question, greedy:\n\n"
        + "\n".join(kinds)
        + f"\n\nMade by `{command}` on {describe()}.\n"
    )


if __name__ == "__main__":
    measure_seeds(__file__, __doc__ or "", run, report)
