"""A model whose attempts all fail, with a teacher and with GRPO: seeds 0-2.

    python benchmarks/distillation.py            # writes benchmarks/results/distillation.md

The teacher is the search task's tiny model after 60 steps on demonstrations. The start is the tiny model of
`two_hop_search.py`, which is careless in every turn. From it one run distils the teacher (``train.method=opd``, no
rewards), and one is GRPO; both have the same number of attempts and the rates that the task has for GRPO.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from machine import describe, sized
from seeds import measure_seeds, run_plugin

TASK = str(Path(__file__).with_name("two_hop_search.py"))
ALONE = "train.workers=1"
SIZE = ("train.steps=100", "eval.every=50", "eval.limit=0", "train.until=")
KEYS = (*SIZE, ALONE, *sized((), ("task.short=true",)))
TEACHER = ("train.method=sft", "train.steps=60", "train.lr=1e-3", "train.muon_lr=4e-3", "eval.every=0", ALONE)
DISTILLED = ("train.method=opd", "train.prompts_per_step=16", "train.group_size=2")
GRPO = ("train.prompts_per_step=4", "train.group_size=8")  # as many attempts
START, NEAR, NOTHING = 0.02, 0.05, 0.05  # at most; below the teacher; at most
GREEDY, SAMPLED = "exact_match", "sampled/exact_match"


@dataclass(frozen=True)
class Seed:
    """Held-out success of one seed: greedy, and at temperature 1."""

    seed: int
    teacher: Mapping[str, float]
    start: Mapping[str, float]
    distilled: Mapping[str, float]
    compared: Mapping[str, float]
    kl: tuple[float, float]  # to the teacher, in the first and in the last step
    top: tuple[float, float]  # the part of the differences that 5 % of the tokens have, likewise

    @property
    def held(self) -> bool:
        return (
            self.start[GREEDY] <= START
            and self.distilled[GREEDY] >= self.teacher[GREEDY] - NEAR
            and self.compared[GREEDY] <= NOTHING
        )


def run(seed: int, scratch: Path) -> Seed:
    _, teacher = run_plugin("search", seed, scratch, "teacher", *TEACHER)
    _, distilled = run_plugin(TASK, seed, scratch, "opd", *KEYS, *DISTILLED, f"train.teacher={teacher}")
    _, compared = run_plugin(TASK, seed, scratch, "grpo", *KEYS, *GRPO)
    found = {out: json.loads((out / "summary.json").read_text())["eval"] for out in (distilled, compared)}
    rows = [json.loads(line) for line in (distilled / "metrics.jsonl").read_text().splitlines()]
    return Seed(
        seed,
        measured(teacher, seed, scratch / f"measured-{seed}"),
        found[distilled]["before"],
        found[distilled]["after"],
        found[compared]["after"],
        (rows[0]["teacher_kl"], rows[-1]["teacher_kl"]),
        (rows[0]["teacher_kl_top"], rows[-1]["teacher_kl_top"]),
    )


def measured(model: Path, seed: int, out: Path) -> Mapping[str, float]:
    """A run's model on the held-out questions."""
    if not (out / "summary.json").exists():
        command = [sys.executable, "-m", "rlfactory_core", "eval", "--plugin", TASK, "--model", str(model)]
        command += ["--seed", str(seed), "--out", str(out), "eval.attempts=2", f"eval.limit={sized(0, 8)}"]
        subprocess.run(command, check=True)
    found: Mapping[str, float] = json.loads((out / "summary.json").read_text())["eval"]["after"]
    return found


def report(seeds: Sequence[Seed], command: str) -> str:
    rows = [
        "| seed | the teacher | the start | distilled | GRPO | KL to the teacher |",
        "|---" * 6 + "|",
    ]
    for one in seeds:
        figures = [f"{each[GREEDY]:.3f} ({each[SAMPLED]:.3f})" for each in (one.teacher, one.start, one.distilled)]
        figures += [f"{one.compared[GREEDY]:.3f} ({one.compared[SAMPLED]:.3f})"]
        figures += ["{:.2f} → {:.2f}".format(*one.kl)]
        rows.append(f"| {one.seed} | " + " | ".join(figures) + " |")
    rows.append(f"| bar | | ≤ {START:g} | teacher - {NEAR:g} | ≤ {NOTHING:g} | |")
    top = ", ".join("{:.2f} → {:.2f}".format(*one.top) for one in seeds)
    return (
        "# On-policy distillation from a start at 0\n\n"
        "Held-out exact match, greedy and in brackets at temperature 1, of questions that need two searches. The\n"
        "start makes a mistake in most turns, so that hardly one of its attempts succeeds. Rewards do not count for\n"
        "the distilled model. 5 % of the tokens have this part of all differences to the teacher, in the first and\n"
        f"in the last step: {top}.\n\n" + "\n".join(rows) + f"\n\nMade by `{command}` on {describe()}.\n"
    )


if __name__ == "__main__":
    measure_seeds(__file__, __doc__ or "", run, report)
