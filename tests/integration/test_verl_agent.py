"""An agent of LangGraph and a second task, trained by verl and vLLM on the CPU with adapters."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from mcp_runs import trajectories
from runs import TINY_TASK, metrics, summary
from verl_runs import VERL, rlfactory

pytest.importorskip("verl", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("vllm", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest_plugins = ("verl_runs",)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("nothing_of_verl_left"),
    pytest.mark.skipif(find_spec("langgraph") is None, reason="`nox -s verl` installs LangGraph"),
]
PLUGIN = Path(__file__).parents[1] / "support" / "agent_examples" / "search_in_langgraph.py"


def test_an_agent_and_a_second_task_are_trained_with_adapters(tmp_path: Path) -> None:
    """The agent's file is the one that the embedded engine trains. What vLLM samples from is what was trained."""
    warm, run, config = tmp_path / "warm", tmp_path / "run", tmp_path / "run.yaml"
    still = ("train.lr=1e-12", "train.muon_lr=0", "train.group_size=2", "eval.limit=2", "eval.sampled=false")
    rlfactory("run", "--plugin", "search", "--steps", "1", *still, "--out", warm)
    model = warm / "checkpoints" / "latest"
    tasks = {
        "agent": {"plugin": str(PLUGIN), "weight": 3},
        "looks": {"plugin": TINY_TASK, "rewards": {"looked": 1.0}, "rollout": {"max_turns": 1}},
    }
    train = {"prompts_per_step": 8, "group_size": 8, "lr": 1e-2, "lora": {"rank": 4, "alpha": 8}}
    train |= {"updates_per_step": 2, "aggregation": "trajectory"}
    evaluated = {"limit": 4, "every": 0, "sampled": False}
    limits = {"max_turn_tokens": 40, "max_tokens": 320}
    given = {"model": str(model), "dtype": "float32", "tasks": tasks, "rollout": limits}
    config.write_text(json.dumps({**given, "train": train, "eval": evaluated}))
    rlfactory("run", "--config", config, *VERL, "--steps", "2", "--out", run)

    rows = metrics(run)
    assert [row["step"] for row in rows] == [1, 2]
    assert {"reward/agent", "reward/looks", "success/looks"} <= set(rows[0])
    assert max(row["rollout_probs_diff_max"] for row in rows) < 0.05  # verl rounds the merged weights to bfloat16
    assert all(row["grad_norm"] > 0 for row in rows)
    assert all(row["masked"] == row["faults/agent"] == 0 for row in rows)
    played = [each for step in (1, 2) for each in trajectories(run, f"step-{step:06d}")]
    assert Counter(each["sample"]["task"] for each in played) == {"agent": 2 * 6 * 8, "looks": 2 * 2 * 8}
    agents = [each for each in played if each["sample"]["task"] == "agent"]
    assert sum(len(each["turns"]) > 1 for each in agents) > 40  # searched, and read what came
    assert all(each["answer"] is not None for each in agents)
    after = summary(run)["eval"]["after"]
    assert after["success"] == pytest.approx((after["success/agent"] + after["success/looks"]) / 2)
    assert "No problems found" in rlfactory("trace", run, "--verify").out

    proof = summary(run)["policy_moved"]
    assert proof["moved"] > 3 * proof["noise"]
    assert proof["to_new"] < proof["moved"] / 3 < proof["to_old"]
    assert_the_adapter_is_what_was_merged(model, run / "checkpoints" / "latest")


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
