"""Adapters on verl for real, on the CPU, with two tasks in one run: what vLLM samples from is what was trained."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from runs import TINY_TASK, metrics, summary
from verl_runs import VERL, rlfactory

pytest.importorskip("verl", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("vllm", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest_plugins = ("verl_runs",)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_of_verl_left")]


def test_adapters_reach_vllm_and_two_tasks_are_trained(tmp_path: Path) -> None:
    warm, run, config = tmp_path / "warm", tmp_path / "run", tmp_path / "run.yaml"
    still = ("train.lr=1e-12", "train.muon_lr=0", "train.group_size=2", "eval.limit=2")
    rlfactory("run", "--plugin", TINY_TASK, "task.head_dim=32", "--steps", "1", *still, "--out", warm)
    tasks = {
        "colours": {"plugin": TINY_TASK, "weight": 3},
        "looks": {"plugin": TINY_TASK, "rewards": {"looked": 1.0}, "rollout": {"max_turns": 1}},
    }
    train = {"prompts_per_step": 8, "group_size": 4, "lr": 1e-2, "lora": {"rank": 4, "alpha": 8}}
    limits = {"max_turn_tokens": 40, "max_tokens": 320}
    model = str(warm / "checkpoints" / "latest")
    data = {"model": model, "dtype": "float32", "tasks": tasks, "train": train, "rollout": limits, "eval": {"limit": 4}}
    config.write_text(json.dumps(data))
    rlfactory("run", "--config", config, *VERL, "--steps", "2", "eval.every=0", "eval.sampled=false", "--out", run)

    rows = metrics(run)
    assert {"reward/colours", "reward/looks", "success/looks"} <= set(rows[0])
    lines = (run / "trajectories" / "step-000001.jsonl").read_text().splitlines()
    assert Counter(json.loads(line)["sample"]["task"] for line in lines) == {"colours": 24, "looks": 8}
    after = summary(run)["eval"]["after"]
    assert after["success"] == pytest.approx((after["success/colours"] + after["success/looks"]) / 2)

    proof = summary(run)["policy_moved"]
    assert proof["moved"] > 3 * proof["noise"]
    assert proof["to_new"] < proof["moved"] / 3 < proof["to_old"]
    assert_the_adapter_is_what_was_merged(Path(model), run / "checkpoints" / "latest")


def assert_the_adapter_is_what_was_merged(base: Path, checkpoint: Path) -> None:
    """The start model with the adapters computes what the merged model does, and not what it did itself."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    ids = torch.arange(1, 40)[None]
    with torch.no_grad():
        merged = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)(ids).logits
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        start = model(ids).logits
        adapted = PeftModel.from_pretrained(model, str(checkpoint / "adapter"))(ids).logits
    assert float((adapted - merged).abs().max()) < 1e-4 < float((start - merged).abs().max())
