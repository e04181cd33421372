"""Several tasks in one run: shares by weight, each with its own tools, limits and rewards; refused where they clash."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from runs import TINY_TASK, Cli, metrics, repeatable, summary

from rlfactory_core.algo.prompts import Played, PromptsByTask, UniformPrompts, prompt_shares
from rlfactory_core.errors import ConfigError
from rlfactory_core.types import Sample

SMALL = {
    "train": {"prompts_per_step": 3, "group_size": 4, "lr": 1e-3, "muon_lr": 3e-3},
    "eval": {"limit": 6, "every": 2},
}


def mixed_config(path: Path, **more: object) -> Path:
    """Two tasks that a tiny model can do, which call success by different names."""
    tasks = {
        "colours": {"plugin": TINY_TASK, "weight": 2},
        "looks": {
            "plugin": TINY_TASK,
            "task": {"samples": 20},
            "rewards": {"looked": 1.0},
            "rollout": {"max_turns": 1},
        },
    }
    limits = {"max_turn_tokens": 40, "max_tokens": 320}
    path.write_text(yaml.safe_dump({"tasks": tasks, "rollout": limits, **SMALL, **more}), encoding="utf-8")
    return path


def test_prompts_are_shared_by_weight_and_each_task_has_one() -> None:
    def shares(per_step: int, **weights: float) -> dict[str, int]:
        return prompt_shares(weights, per_step)

    assert shares(9, a=2, b=1) == {"a": 6, "b": 3}
    assert shares(8, a=2, b=1) == {"a": 5, "b": 3}
    assert shares(8, a=100, b=1, c=1) == {"a": 6, "b": 1, "c": 1}
    assert shares(3, a=1, b=1, c=1) == {"a": 1, "b": 1, "c": 1}
    with pytest.raises(ConfigError, match=r"Set train\.prompts_per_step to 3 or more"):
        shares(2, a=1, b=1, c=1)


def test_each_task_goes_through_its_samples_once_an_epoch() -> None:
    samples = [Sample(f"a/{i}", "?", task="a") for i in range(8)] + [Sample(f"b/{i}", "?", task="b") for i in range(4)]
    prompts = PromptsByTask(UniformPrompts, samples, {"a": 2, "b": 1}, seed=3)
    drawn = Counter(index for step in range(1, 5) for index in prompts.step(step))
    assert drawn == Counter(range(12))
    assert samples[prompts.replacement(1, 1, 1)].task == "a"
    assert samples[prompts.replacement(1, 2, 1)].task == "b"
    prompts.played([Played(0, 1.0, 4), Played(11, 1.0, 4)])
    prompts.load(prompts.state())


@pytest.mark.slow
def test_two_tasks_are_trained_measured_and_resumed(cli: Cli, tmp_path: Path, tiny_model: Path) -> None:
    config = mixed_config(tmp_path / "mix.yaml", model=str(tiny_model))
    command = ["run", "--config", config, "train.workers=2", "rollout.deterministic=true", "--steps", "4"]
    outcome = cli(*command, "--out", tmp_path / "whole")
    assert outcome.code == 0, outcome.err
    first = metrics(tmp_path / "whole")[0]
    assert {"reward/colours", "reward/looks", "success/colours", "success/looks", "exact_match/colours"} <= set(first)
    assert "exact_match/looks" not in first
    found = summary(tmp_path / "whole")
    assert (found["plugin"], found["success"]) == ("colours+looks", "success")
    after = found["eval"]["after"]
    assert after["success"] == pytest.approx((after["success/colours"] + after["success/looks"]) / 2)
    assert after["success/colours"] == pytest.approx(after["exact_match"])

    lines = (tmp_path / "whole" / "trajectories" / "step-000001.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert Counter(row["sample"]["task"] for row in rows) == {"colours": 8, "looks": 4}
    assert all(row["sample"]["id"].startswith(row["sample"]["task"] + "/") for row in rows)
    assert {len(row["turns"]) for row in rows if row["sample"]["task"] == "looks"} == {1}

    half = tmp_path / "half"
    assert cli(*command[:-1], "2", "--out", half).code == 0
    assert cli("run", "--resume", half, "--steps", "4").code == 0
    assert repeatable(half)[2:] == repeatable(tmp_path / "whole")[2:]

    outcome = cli("eval", "--model", half, "eval.limit=4", "--attempts", "1", "--out", tmp_path / "eval")
    assert outcome.code == 0, outcome.err
    assert {"success/colours", "success/looks"} <= set(summary(tmp_path / "eval")["eval"]["after"])
    assert cli("trace", half).code == 0


@pytest.mark.slow
def test_a_task_that_does_not_open_is_named(cli: Cli, tmp_path: Path, tiny_model: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(Path(TINY_TASK).read_text().replace("    async def open(self) -> None:\n", OPENS_NOT))
    options = ["--model", tiny_model, "train.workers=1", "rollout.max_tokens=320"]
    outcome = cli("run", "--plugin", TINY_TASK, "--plugin", f"{broken}=3", *options)
    assert outcome.code != 0
    assert "The task 'broken' of this run does not open: OSError: no such shelf" in outcome.err
    assert "Traceback" not in outcome.err


OPENS_NOT = '    async def open(self) -> None:\n        raise OSError("no such shelf")\n'


@pytest.mark.slow
def test_what_cannot_be_is_refused_before_anything_costly(cli: Cli, tmp_path: Path) -> None:
    two = ["run", "--plugin", f"{TINY_TASK}=2", "--plugin", "search"]
    assert "needs a model for all of them. Give --model" in cli.refusal(*two)
    two += ["--model", "somewhere"]
    assert "task is of one task" in cli.refusal(*two, "--top-k", "3")
    assert "Write tasks.tiny_task.data.train" in cli.refusal(*two, "--data", "x.jsonl")
    assert "max_turn" in cli.refusal(*two, "tasks.search.rollout.max_turn=3")
    assert "expected NAME=WEIGHT" in cli.refusal("run", "--plugin", "search=much")
    assert "two of the name search" in cli.refusal("run", "--plugin", "search=1", "--plugin", "search=2")
    assert "got 0, expected greater than 0" in cli.refusal(*two, "tasks.search.weight=0")
    assert "prompts_per_step" in cli.refusal(*two, "train.prompts_per_step=1", "--out", tmp_path / "run")
    assert (
        "drop one of the two"
        in cli.refusal("run", "--config", mixed_config(tmp_path / "m.yaml"), "--plugin", "search").lower()
    )
