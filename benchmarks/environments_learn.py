"""One environment of OpenEnv, one of Gymnasium and one of verifiers, and whether a tiny model learns them.

    python benchmarks/environments_learn.py      # writes benchmarks/results/environments_learn.md

Each run is the whole command with an empty cache: demonstrations of the solver in ``environments_solvers.py``, a warm
start, and reinforcement learning. OpenEnv's environment is the echo server that its own command writes, in a process of
its own. It needs the libraries: ``nox -s benchmarks -- environments_learn`` has them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from seeds import Bar, Case, measure_learning

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from openenv_echo import ECHO, make_echo, serving

SOLVERS = Path(__file__).with_name("environments_solvers.py")
SHARED = ("train.steps=20", "train.prompts_per_step=8", "train.group_size=8", "eval.every=0", "eval.limit=64")
RISE = 0.2  # the bar: of the reward of sampled episodes on held-out samples
SESSIONS = 64


def cases(url: str) -> dict[str, Case]:
    """The runs by name; the first plays the server at this address."""
    echo = (
        *(f"task.url={url}", "task.eval_samples=64", "task.max_steps=3", f"task.solver={SOLVERS}:short_echo"),
        "rollout.max_turn_tokens=16",
    )
    lake = (
        *("task.environment=FrozenLake-v1", 'task.arguments={"is_slippery": false}'),
        *(f"task.solver={SOLVERS}:frozen_lake", "task.train_seeds=64", "rollout.max_turns=12"),
        "rollout.max_turn_tokens=8",
    )
    sums = ("task.environment=reasoning_sums", f"task.solver={SOLVERS}:small_sums", "rollout.max_turn_tokens=16")
    return {
        "OpenEnv, its echo environment": Case("openenv", "sampled/env_reward", (*echo, *SHARED)),
        "Gymnasium, FrozenLake-v1": Case("gymnasium", "sampled/env_reward", (*lake, *SHARED)),
        "verifiers, sums of two digits by reasoning-gym": Case(
            "verifiers", "sampled/verifiers_rubric", (*sums, *SHARED, "train.steps=40")
        ),
    }


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = sys.path[0]  # where verifiers finds the task set
    with TemporaryDirectory() as folder, serving("-c", ECHO, "0", place=make_echo(Path(folder), SESSIONS)) as url:
        measure_learning(
            __file__,
            __doc__ or "",
            cases(url),
            title="Environments of others, learnt by a tiny model",
            what="The reward that the environment gives on 64 held-out samples, sampled at temperature 1, before and "
            "after 20 steps, or 40 of verifiers' environment. OpenEnv's echo environment gives 0.1 for each character "
            "of a reply, at most 1, in three steps; in the demonstrations only the last reply is long.",
            figure="reward",
            bar=Bar(("", f"≥ {RISE:g} more"), lambda before, after: after - before >= RISE),
            libraries=("openenv", "gymnasium", "verifiers", "reasoning-gym"),
        )
