"""PPO with the verl engine for real, on the CPU: a critic, rewards of turns, masked outages and a judge's budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_openai import said, serve
from runs import TINY_TASK, finish, metrics, start
from verl_runs import LIMIT_S, VERL

pytest.importorskip("verl", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("vllm", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest_plugins = ("verl_runs",)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_of_verl_left")]

STOPPED = 130


def test_ppo_places_turn_rewards_masks_outages_and_stops_when_a_judge_has_spent_its_budget(tmp_path: Path) -> None:
    """A one-file plugin whose environment rewards turns, and whose tool is down for one attempt of each group."""
    pytest.importorskip("rlfactory_judge", reason="the judge: python -m pip install -e plugins/rlfactory-judge")
    run, config = tmp_path / "run", tmp_path / "run.yaml"
    with serve(lambda body: said('{"score": 7}'), models=["a/judge"]) as server:
        # 110 tokens a reply. A step of 64 attempts takes some 50 to 64 replies, since equal ones share theirs. The
        # budget is spent in the third step, or just after it: then nothing of the fourth can be used.
        budget = {"token_budget": 16_000, "max_tokens": 64, "on_budget": "stop"}
        judge = {"name": "judge", "url": server.url, "cache": "off", **budget}
        task = {"head_dim": 32, "turn_reward": 0.5, "outage": True}
        config.write_text(json.dumps({"plugin": TINY_TASK, "task": task, "tools": {"retries": 0}, "rewards": [judge]}))
        command = (
            "run", "--config", config, *VERL, "--out", run, "--steps", "9", "train.advantage=gae",
            "train.critic_lr=1e-3", "train.prompts_per_step=16", "eval.limit=4", "eval.sampled=false",
            "checkpoint.every=1",
        )  # fmt: skip
        outcome = finish(start(*command), LIMIT_S)
        asked = len(server.requests)
    assert outcome.code == STOPPED, outcome.out
    assert "budget" in outcome.out
    rows = metrics(run)
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    assert 2 <= len(rows) < 9
    assert asked >= 64
    assert (run / "checkpoints" / f"step-{len(rows)}").exists()

    rows = rows[:2]  # of the others, some may not have been judged
    assert all(row["verl/critic/vf_loss"] > 0 for row in rows)
    assert sum(row["masked"] for row in rows) > 0  # of 32 attempts, a quarter of which call the tool
    assert all(row["faults/infra"] == row["masked"] for row in rows)
    trajectories = [
        json.loads(line)
        for step in (1, 2)
        for line in (run / "trajectories" / f"step-{step:06d}.jsonl").read_text().splitlines()
    ]
    assert any(turn["reward"] == 0.5 for item in trajectories for turn in item["turns"])
    first = [item for item in trajectories[:64] if not item["masked"]]
    assert [item["score"]["components"]["judge"] for item in first] == pytest.approx([0.7] * len(first))
    trained = [item["reward"] for item in first]
    assert rows[0]["verl/critic/score/mean"] == pytest.approx(sum(trained) / len(trained), abs=1e-4)
