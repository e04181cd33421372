"""What older samples cost in reward and save in time: the search task with a tool that takes 0.2 s, seeds 0-2.

    python benchmarks/staleness.py                # writes benchmarks/results/staleness.md
    python benchmarks/staleness.py --staleness 4 --decoupled    # that one alone, beside on-policy

All runs of a seed start from the same warm-started model and take the same number of steps of the same size. They
differ in ``train.staleness``, and in the objective: relative to the policy that sampled, or decoupled
(``train.truncate_weight=2``).
A step is one optimizer step on 32 attempts, as many as the demo's optimizer steps have: a version of the weights is
then a single optimizer step, and the batch is small enough that a tool of 0.2 s is what an on-policy run waits for.
The bars are those of staleness 4; the script exits with 1 where a seed misses one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean

from machine import describe, sized
from seeds import measure_seeds, run_plugin

TASK = str(Path(__file__).with_name("slow_search.py"))
STALENESS: tuple[int, ...] = sized((1, 2, 4, 8), (4,))
DECOUPLED: tuple[int, ...] = sized((4,), ())
JUDGED = "4"
LOST = 0.02  # of held-out success at temperature 1, at most
TIME = 0.4  # of the on-policy run's seconds, at most
STEPS = sized(160, 2)
GROUPS = 4  # trajectories of a step: 4 x 8
KEYS = (
    f"train.steps={STEPS}",
    "train.until={}",
    f"train.prompts_per_step={GROUPS}",
    "train.updates_per_step=1",
    "train.workers=1",
    "eval.every=0",
    f"eval.limit={sized(200, 24)}",
    f"eval.attempts={sized(4, 1)}",
)


@dataclass(frozen=True)
class Result:
    """One run."""

    success: float  # held out, at temperature 1, after the training
    seconds: float  # of rollouts and updates
    staleness: float  # mean versions by which a trained token was older
    effective: float  # effective sample size as a share of the tokens

    @classmethod
    def of(cls, out: Path) -> Result:
        found = json.loads((out / "summary.json").read_text())
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return cls(
            found["eval"]["after"]["sampled/exact_match"],
            sum(row["rollout_wait_s"] + row["update_s"] for row in rows),
            mean(row["staleness"] for row in rows),
            mean(row["effective_sample_size"] for row in rows),
        )


@dataclass(frozen=True)
class Seed:
    """All runs of a seed, by staleness."""

    seed: int
    runs: dict[str, Result]

    def lost(self, name: str) -> float:
        """Success less than on-policy."""
        return self.runs["0"].success - self.runs[name].success

    def time(self, name: str) -> float:
        """Seconds to those on-policy."""
        return self.runs[name].seconds / max(self.runs["0"].seconds, 1e-9)

    @property
    def held(self) -> bool:
        return self.lost(JUDGED) <= LOST and self.time(JUDGED) <= TIME


def run(asked: argparse.Namespace, seed: int, scratch: Path) -> Seed:
    keys: dict[str, tuple[str, ...]] = {"0": ()}
    for staleness in asked.staleness:
        more = (f"train.staleness={staleness}", f"rollout.slots={8 * GROUPS * (staleness + 1)}")
        keys[str(staleness)] = more
        if staleness in asked.decoupled:
            keys[f"{staleness}, decoupled"] = (*more, "train.truncate_weight=2")
    runs = {name: Result.of(run_plugin(TASK, seed, scratch, name, *KEYS, *more)[1]) for name, more in keys.items()}
    return Seed(seed, runs)


def report(asked: argparse.Namespace, seeds: Sequence[Seed], command: str) -> str:
    rows = ["| seed | staleness | T=1, after | to on-policy | seconds | to on-policy | versions | effective samples |"]
    rows.append("|---" * 8 + "|")
    rows += [f"| {each.seed} | {name} | {_cells(each, name)} |" for each in seeds for name in each.runs]
    lost, time = ([get(each, JUDGED) for each in seeds] for get in (Seed.lost, Seed.time))
    rows += [
        f"| {title} | {JUDGED} | | {-of(lost):+.3f} | | {of(time):.2f} | | |"
        for title, of in (("mean", mean), ("worst", max))
    ]
    rows.append(f"| bar | {JUDGED} | | ≥ -{LOST} | | ≤ {TIME} | | |")
    return (
        "# Staleness\n\n"
        f"Held-out success at temperature 1 on the search task after {STEPS} steps of {GROUPS} x 8 attempts, with a\n"
        "tool that takes 0.2 s: 800 attempts, so a standard error of about 0.016. Seconds are those of rollouts and\n"
        "updates. Versions: by how many updates a trained token's weights were older, in the mean. Effective samples:\n"
        "as a share of the tokens. Decoupled: with `train.truncate_weight=2`.\n\n"
        + "\n".join(rows)
        + f"\n\nMade by `{command}{_options(asked)}` on {describe()}. One process, one thread.\n"
    )


def _options(asked: argparse.Namespace) -> str:
    """Those that differ from the whole table's."""
    given = (("staleness", asked.staleness, STALENESS), ("decoupled", asked.decoupled, DECOUPLED))
    values = (f" --{name} {' '.join(map(str, of))}".rstrip() for name, of, whole in given if tuple(of) != whole)
    return "".join(values)


def _cells(seed: Seed, name: str) -> str:
    found = seed.runs[name]
    success = f"{found.success:.3f} | {-seed.lost(name):+.3f}"
    seconds = f"{found.seconds:.0f} | {seed.time(name):.2f}"
    return f"{success} | {seconds} | {found.staleness:.2f} | {found.effective:.2f}"


if __name__ == "__main__":
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--staleness", type=int, nargs="+", default=STALENESS, help=f"has to include {JUDGED}")
    options.add_argument("--decoupled", type=int, nargs="*", default=DECOUPLED, help="those also run with it")
    asked = options.parse_known_args()[0]
    measure_seeds(__file__, __doc__ or "", partial(run, asked), partial(report, asked), options=[options])
