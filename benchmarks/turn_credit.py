"""Attempts until a task with a reward in each turn is learnt, by what is compared: seeds 0-2.

    python benchmarks/turn_credit.py                 # writes benchmarks/results/turn_credit.md
    python benchmarks/turn_credit.py --advantages turn_grpo gigpo        # these alone beside grpo

The task is `quiz_task.py`: twelve questions in a row. All runs of a seed start from the same model and see the same
prompts; they differ in ``train.advantage`` only. Held-out reward at temperature 0 is measured every 10 steps.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from machine import describe, sized
from seeds import measure_seeds, run_plugin

TASK = str(Path(__file__).with_name("quiz_task.py"))
ADVANTAGES = sized(("turn_grpo", "gigpo", "gae"), ("gigpo",))  # beside grpo
LEARNT = 0.8
BAR = 0.6  # of the attempts that grpo takes; for gigpo, which compares turns of one state
KEYS = (
    f"train.steps={sized(300, 2)}",
    "eval.every=10",
    f"train.until.env_reward={LEARNT}",
    "eval.sampled=false",
    "train.critic_lr=3e-3",
    "train.lam=0.5",
)


@dataclass(frozen=True)
class Learnt:
    """How far one run came."""

    attempts: int
    reached: bool  # `LEARNT` within the steps
    rewards: tuple[float, ...]  # held out, every 10 steps

    @classmethod
    def of(cls, out: Path) -> Learnt:
        found = json.loads((out / "summary.json").read_text())
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        rewards = tuple(row["eval/env_reward"] for row in rows if "eval/env_reward" in row)
        return cls(found["trajectories"], found["ended"]["by"] == "until", rewards)


@dataclass(frozen=True)
class Seed:
    """All runs of a seed."""

    seed: int
    runs: dict[str, Learnt]

    def ratio(self, name: str) -> float:
        """Attempts to those of grpo."""
        return self.runs[name].attempts / self.runs["grpo"].attempts

    @property
    def held(self) -> bool:
        return self.runs["gigpo"].reached and self.ratio("gigpo") <= BAR


def run(advantages: Sequence[str], seed: int, scratch: Path) -> Seed:
    keys = {name: (*KEYS, f"train.advantage={name}") for name in ("grpo", *advantages)}
    return Seed(seed, {name: Learnt.of(run_plugin(TASK, seed, scratch, name, *keys[name])[1]) for name in keys})


def report(advantages: Sequence[str], seeds: Sequence[Seed], command: str) -> str:
    rows = ["| seed | advantage | attempts | to grpo | held-out reward, every 50 steps |", "|---" * 5 + "|"]
    for each in seeds:
        for name, found in each.runs.items():
            curve = " ".join(f"{reward:.2f}" for reward in found.rewards[4::5])
            sign = "" if found.reached else "> "
            rows.append(f"| {each.seed} | `{name}` | {sign}{found.attempts:,} | {each.ratio(name):.2f} | {curve} |")
    for name in advantages:
        bar = f"bar ≤ {BAR:g}" if name == "gigpo" else ""
        rows.append(f"| median | `{name}` | | {median(each.ratio(name) for each in seeds):.2f} | {bar} |")
    options = "" if tuple(advantages) == ADVANTAGES else f" --advantages {' '.join(advantages)}"
    return (
        "# Credit by turn\n\n"
        f"Attempts until the held-out reward is {LEARNT:g} on a task of twelve independent turns, each with a reward. "
        ">: not reached.\n\n" + "\n".join(rows) + f"\n\nMade by `{command}{options}` on {describe()}.\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--advantages", nargs="+", default=ADVANTAGES, help="beside grpo; gigpo has to be one of them")
    asked = parser.parse_known_args()[0].advantages
    measure_seeds(__file__, __doc__ or "", partial(run, asked), partial(report, asked), options=[parser])
