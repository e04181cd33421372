"""PPO with verl for real, on the CPU: a critic, adapters, turn rewards, outages, a judge beside the policy, MCP."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from colour_server import COLOURS
from mcp_runs import Servers, results, trajectories
from runs import TINY_TASK, finish, metrics, start, summary
from verl_runs import LIMIT_S, VERL, own_model, rlfactory

from rlfactory_core.algo.masking import is_trained
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.types import Group, Trajectory

pytest.importorskip("verl", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("vllm", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("rlfactory_judge", reason="the judge: python -m pip install -e plugins/rlfactory-judge")
pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")
from tiny_judge import tiny_judge

pytest_plugins = ("mcp_runs", "verl_runs")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_of_verl_left")]

STOPPED = 130
TASK = {"head_dim": 32, "turn_reward": 0.5, "loses": 3}
LIMITS = {"max_turns": 3, "max_tool_calls": 2, "max_turn_tokens": 40, "max_tokens": 320, "retries": 0}


@pytest.fixture(scope="module")
def policy(cache: Path) -> Path:
    """What the run starts from. Made before it: what torch and Python start for it stays until this process ends."""
    return own_model(TINY_TASK, **TASK)


def test_ppo_with_a_judge_in_verls_pool_until_its_budget_is_spent(
    policy: Path, servers: Servers, data: Path, tmp_path: Path
) -> None:
    """A critic; adapters; an environment that rewards turns; a tool that loses each third call.

    Of the four rewards, the judge and one of the test's own share the model that verl serves in a pool; a rule and a
    verifier score beside them. What the model says is held to its form by vLLM, so that every attempt can be scored.
    Beside it, the generic task has the tool of an MCP server that verl's processes share.
    """
    run, config, judge = tmp_path / "run", tmp_path / "run.yaml", tiny_judge(tmp_path / "judge")
    served = {"model": str(judge), "placement": "pool", "output": "json", "cache": "off", "max_tokens": 64}
    rewards = [
        # A question takes some 1,400 tokens, a step of 32 attempts 24 to 32 questions, since equal ones share theirs.
        # The budget is spent in the fourth step, or sooner if a step is played again, because it has lost more than a
        # third of those that called the tool. Few call it, so that fewer steps might have lost none.
        {"name": "judge", **served, "token_budget": 130_000, "on_budget": "stop"},
        {"name": "asked", "weight": 0.5, "model": str(judge)},
        *({"name": name, "weight": 0.1} for name in ("exact_match", "looked")),
    ]
    names = {reward["name"] for reward in rewards}
    rows_of = {"train": str(data), "eval": str(data), "columns": {"answer": "answer"}}
    by_mcp = {"data": rows_of, "tools": {"mcp": str(servers.config)}, "task": {"system": ""}}
    tasks = {
        "colours": {"plugin": TINY_TASK, "task": TASK, "rewards": rewards, "weight": 2},
        "served": {"plugin": "tools", **by_mcp, "rewards": {"exact_match": 1.0}},
    }
    config.write_text(json.dumps({"tasks": tasks, "model": str(policy), "tools": {"retries": 0}, "rollout": LIMITS}))
    command = (
        "run", "--config", config, *VERL, "--out", run, "--steps", "9", "train.advantage=gae", "train.critic_lr=1e-3",
        "train.prompts_per_step=12", "train.group_size=4", "eval.limit=2", "eval.sampled=false", "checkpoint.every=1",
        "train.lora.rank=4", "train.lora.alpha=8", "train.lr=1e-2", "verl.agent_workers=2",
    )  # fmt: skip
    shown = rlfactory(*command, "--dry-run").out.splitlines()
    told = [line.split() for line in shown if line.startswith("# rewards.judge, rewards.asked")]
    assert ["reward.reward_model.model_path", f"'{judge}'"] in [words[-2:] for words in told]
    assert not run.exists()

    outcome = finish(start(*command), LIMIT_S)
    assert outcome.code == STOPPED, outcome.out
    assert "budget" in outcome.out
    rows = metrics(run)
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    assert 2 <= len(rows) < 9
    assert (run / "checkpoints" / f"step-{len(rows)}").exists()
    assert names <= set(summary(run)["eval"]["before"])

    assert max(row["rollout_probs_diff_max"] for row in rows) < 0.05  # verl rounds the merged weights to bfloat16
    proof = summary(run)["policy_moved"]
    assert proof["moved"] > 3 * proof["noise"]
    assert proof["to_new"] < proof["moved"] / 3 < proof["to_old"]
    assert_the_adapter_is_what_was_merged(policy, run / "checkpoints" / "latest")

    assert sum(row["faults/infra"] for row in rows) > 0
    rows = rows[:2]  # of the others, some may not have been judged
    assert all(row["verl/critic/vf_loss"] > 0 for row in rows)
    assert all(names <= set(row) for row in rows)
    assert all(row["faults/infra"] == row["masked"] for row in rows)
    first, second = (trajectories(run, f"step-{step:06d}") for step in (1, 2))
    assert any(turn["reward"] == 0.5 for each in (*first, *second) for turn in each["turns"])
    the_servers_results_came([each for each in (*first, *second) if each["sample"]["task"] == "served"], servers)
    judged = [each for each in first if each["sample"]["task"] == "colours" and not each["masked"]]
    for each in judged:
        score = each["score"]
        assert names <= set(score["components"])
        assert score["verdicts"]["judge"]["reasons"]
        assert score["seconds"] < sum(score["latency_s"].values())  # all at once
    for row in rows:
        trained = rewards_that_are_trained(run / "trajectories" / f"step-{row['step']:06d}.jsonl")
        assert row["verl/critic/score/mean"] == pytest.approx(sum(trained) / len(trained), abs=1e-4)


def the_servers_results_came(played: list[dict[str, Any]], servers: Servers) -> None:
    assert len(played) == 32
    assert not any(each["masked"] for each in played)
    found = [result for each in played for result in results(each)]
    assert {result["content"] for result in found} & {f"1: {colour}" for colour in COLOURS.values()}
    assert len(servers.queries) >= sum(result["attempts"] for result in found) > 0
    assert len(servers.started) == 3  # the checks of the machine and of the pool, and all rollout processes together


def rewards_that_are_trained(path: Path) -> list[float]:
    """Of the attempts that are not masked, without the groups that lost too many of those that called a tool."""
    groups: defaultdict[str, list[Trajectory]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        trajectory = StoredTrajectory.from_line(line).trajectory
        groups[trajectory.sample.id].append(trajectory)
    return [
        each.reward
        for attempts in groups.values()
        if is_trained(Group(attempts[0].sample, tuple(attempts)))
        for each in attempts
        if not each.masked
    ]


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
