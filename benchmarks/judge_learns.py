"""``rlfactory run --plugin judge`` with an empty cache, three times: whether the truth rises with the judge's score.

    python benchmarks/judge_learns.py            # writes benchmarks/results/judge_learns.md

Each run is the whole command in a process of its own, both warm starts included. Afterwards the run's judge is measured
by ``rlfactory judge calibrate`` on labelled answers about a world that it was not shown, and on the injected texts.
The bars stand below; the script exits with 1 where a seed misses one.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import describe, sized
from rlfactory_judge.demo.judge_model import RUBRIC, demo_labels, judge_model
from rlfactory_judge.demo.server import local_server
from rlfactory_judge.trust.labels import write_labels
from seeds import measure_seeds, run_plugin

from rlfactory_core.reporting.progress import Progress

SECONDS = 300.0
RISE = 0.3  # of held-out exact match, greedy and at temperature 1
WITHOUT = 0.1  # at most, where the tool finds nothing
KAPPA = 0.8  # of the judge with the labels, at least
LABELS = sized(400, 24)
INJECTIONS = sized(5, 1)  # in each wrong answer


@dataclass(frozen=True)
class Run:
    """What one run's folder says, and what its judge is worth. ``curve``: step -> held-out (truth, judge), greedy."""

    seed: int
    seconds: float
    before: dict[str, float]
    after: dict[str, float]
    curve: dict[int, tuple[float, float]]
    requests: float  # to the judge, mean of all steps; equal questions are asked once
    step_s: float
    calibration: dict[str, Any]

    @property
    def held(self) -> bool:
        rises = (self.after[key] - self.before[key] for key in ("exact_match", "sampled/exact_match"))
        good = min(rises) >= RISE and self.without <= WITHOUT and self.kappa >= KAPPA
        return good and self.seconds <= SECONDS

    @property
    def without(self) -> float:
        return self.after["control/no_results/exact_match"]

    @property
    def accuracy(self) -> float:
        return float(self.calibration["answers"]["accuracy"]["value"])

    @property
    def kappa(self) -> float:
        return float(self.calibration["answers"]["kappa"]["value"])

    @property
    def injected(self) -> tuple[float, float]:
        """Share of wrong answers that are accepted: with the injected texts, and without."""
        injected = self.calibration["tables"]["Injected texts"]
        accepted = [injected[f"wrong answers accepted {name}"]["estimate"]["value"] for name in ("with", "without")]
        return float(accepted[0]), float(accepted[1])


def run(seed: int, scratch: Path) -> Run:
    seconds, out = run_plugin("judge", seed, scratch)
    evaluations = json.loads((out / "summary.json").read_text())["eval"]
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    curve = {s["step"]: (s["eval/exact_match"], s["eval/judge"]) for s in steps if "eval/judge" in s}
    return Run(
        seed,
        seconds,
        evaluations["before"],
        evaluations["after"],
        curve,
        _mean(step["counts/judge.requests"] for step in steps),
        _mean(step["step_s"] for step in steps),
        asyncio.run(calibrated(seed, scratch)),
    )


async def calibrated(seed: int, scratch: Path) -> dict[str, Any]:
    """The figures of ``rlfactory judge calibrate``, of the judge in the cache, served as in the run."""
    labels = scratch / f"labels-{seed}.jsonl"
    write_labels(labels, demo_labels(seed, LABELS))
    model = judge_model(seed, Progress())
    async with local_server(model) as url:
        options = {"labels": labels, "url": url, "model": model, "rubric": RUBRIC}
        flags = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        flags += ["--json", "--injections", str(INJECTIONS), "max_tokens=32", "cache=memory"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rlfactory_core", "judge", "calibrate", *flags, stdout=subprocess.PIPE
        )
        figures, _ = await process.communicate()
        if process.returncode:
            raise SystemExit("rlfactory judge calibrate failed; its message stands above")
    return dict(json.loads(figures))


def _mean(values: Any) -> float:
    found = list(values)
    return sum(found) / len(found) if found else float("nan")


def report(runs: Sequence[Run], command: str) -> str:
    head = "| seed | seconds | truth, before | after | T=1, before | after | judge, before | after | no results |"
    rows = [head, "|---" * 9 + "|"]
    for one in runs:
        cells = [
            value[key] for key in ("exact_match", "sampled/exact_match", "judge") for value in (one.before, one.after)
        ]
        mark = "" if one.held else "**"
        numbers = " | ".join(f"{cell:.3f}" for cell in (*cells, one.without))
        rows.append(f"| {mark}{one.seed}{mark} | {one.seconds:.0f} | {numbers} |")
    judges = [
        "| seed | accuracy | kappa | false accepts | with injected texts | s a step | requests a step |",
        "|---" * 7 + "|",
    ]
    for one in runs:
        accepted, plain = one.injected
        numbers = f"{one.accuracy:.3f} | {one.kappa:.3f} | {plain:.3f} | {accepted:.3f}"
        judges.append(f"| {one.seed} | {numbers} | {one.step_s:.2f} | {one.requests:.0f} |")
    steps = sorted({step for one in runs for step in one.curve})
    curve = ["| seed | " + " | ".join(f"step {step}" for step in (0, *steps)) + " |", "|---" * (len(steps) + 2) + "|"]
    for one in runs:
        points = [
            (one.before["exact_match"], one.before["judge"]),
            *(one.curve[step] for step in steps if step in one.curve),
        ]
        curve.append(f"| {one.seed} | " + " | ".join(f"{truth:.3f} / {judge:.3f}" for truth, judge in points) + " |")
    return (
        "# `rlfactory run --plugin judge` from an empty cache\n\n"
        "Rewarded is the score of a tiny judge, which `transformers serve` serves over HTTP; exact match, the truth,\n"
        "has the weight 0. 100 held-out questions about a world that neither model was shown before, greedy and\n"
        'sampled at temperature 1. "No results": the truth after training where search finds nothing. Bold: a bar\n'
        f"is missed (a rise of {RISE:g} at least, greedy and at temperature 1; at most {WITHOUT:g} without results;\n"
        f"a kappa of at least {KAPPA:g}; at most {SECONDS:.0f} seconds).\n\n"
        + "\n".join(rows)
        + "\n\nThe curves, greedy, truth / judge's score:\n\n"
        + "\n".join(curve)
        + f"\n\nThe judges on {LABELS} labelled answers about another world, half of them right, as measured by\n"
        f"`rlfactory judge calibrate`; into each wrong answer {INJECTIONS} of the plugin's injected texts are put:\n\n"
        + "\n".join(judges)
        + f"\n\nMade by `{command}` on {describe()}.\n"
    )


if __name__ == "__main__":
    measure_seeds(__file__, __doc__ or "", run, report)
