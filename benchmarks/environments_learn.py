"""One environment of Gymnasium and one of verifiers, and whether a tiny model learns them.

    python benchmarks/environments_learn.py      # writes benchmarks/results/environments_learn.md

Each run is the whole command with an empty cache: demonstrations of the solver in ``environments_solvers.py``, a warm
start, and reinforcement learning. It needs the libraries: ``nox -s benchmarks -- environments_learn`` has them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from machine import describe, sized
from seeds import measure_seeds, run_plugin

SOLVERS = Path(__file__).with_name("environments_solvers.py")
SUMS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1, "allow_negation": False}
REASONING = {
    "gym": [{"name": "chain_sum", "weight": 1.0, "config": SUMS}],
    "num_train_examples": 512,
    "num_eval_examples": 64,
    "system_prompt": "Give the answer as <answer>answer</answer>.",
}
SHARED = ("train.steps=20", "train.prompts_per_step=8", "train.group_size=8", "eval.every=0", "eval.limit=64")
RUNS = {
    "Gymnasium, FrozenLake-v1": (
        *("gymnasium", "env_reward", "task.environment=FrozenLake-v1", 'task.arguments={"is_slippery": false}'),
        *(f"task.solver={SOLVERS}:frozen_lake", "task.train_seeds=64", "rollout.max_turns=12"),
        *("rollout.max_turn_tokens=8", *SHARED),
    ),
    "verifiers, ReasoningGymEnv with chain_sum of two digits": (
        *("verifiers", "verifiers_rubric"),
        "task.environment=verifiers.legacy.envs.integrations.reasoninggym_env:ReasoningGymEnv",
        *(f"task.arguments={json.dumps(REASONING)}", f"task.solver={SOLVERS}:small_sums", "rollout.max_turn_tokens=16"),
        *SHARED,
    ),
}
RISE = 0.2  # the bar: of the reward of sampled episodes on held-out samples


@dataclass(frozen=True)
class Run:
    """One seed: by environment, wall seconds and the sampled reward before and after."""

    seed: int
    found: dict[str, tuple[float, float, float]]

    @property
    def held(self) -> bool:
        return all(after - before >= RISE for _, before, after in self.found.values())


def run(seed: int, scratch: Path) -> Run:
    found = {}
    for name, (plugin, reward, *keys) in sized(list(RUNS.items()), list(RUNS.items())[:1]):
        seconds, out = run_plugin(plugin, seed, scratch / plugin, "run", *keys)
        evaluations = json.loads((out / "summary.json").read_text())["eval"]
        key = f"sampled/{reward}"
        found[name] = (seconds, evaluations["before"][key], evaluations["after"][key])
    return Run(seed, found)


def report(runs: Sequence[Run], command: str) -> str:
    rows = ["| seed | environment | reward, before | reward, after | seconds |", "|---|---|---|---|---|"]
    rows += [
        f"| {one.seed} | {name} | {before:.3f} | {after:.3f} | {seconds:.0f} |"
        for one in runs
        for name, (seconds, before, after) in one.found.items()
    ]
    rows.append(f"| bar | | | ≥ {RISE:g} more | |")
    return (
        "# Environments of others, learnt by a tiny model\n\n"
        "The reward that the environment gives on 64 held-out samples, sampled at temperature 1, before and after 20 "
        "steps.\n\n"
        + "\n".join(rows)
        + f"\n\nMade by `{command}` on {describe('gymnasium', 'verifiers', 'reasoning-gym')}.\n"
    )


if __name__ == "__main__":
    measure_seeds(__file__, __doc__ or "", run, report)
