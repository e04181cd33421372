"""Whole runs of agents of the user's own: a function in a one-file plugin, and a program on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from agent_programs import ASKING
from mcp_runs import trajectories
from runs import finish, metrics, start, summary

from rlfactory_core.reporting.folder import RunFolder, read_json

pytest_plugins = ("runs",)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]

LIMIT_S = 600.0
SMALL = ("--steps", "2", "train.prompts_per_step=4", "train.group_size=4", "train.workers=1", "eval.limit=8")
FEW = ("eval.attempts=1", "eval.every=0", "eval.limit=24", "train.workers=1")
PROGRAM = (
    ASKING
    + """
messages = [{"role": "user", "content": sample["prompt"]}]
messages.append(ask(messages))
if sample["id"] == "0":
    sys.exit("I do not like this question.")
messages.append({"role": "user", "content": "Sure?"})
print("It is", ask(messages)["content"])
"""
)


@pytest.fixture(autouse=True)
def torchs_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which torch would leave in the folder for temporary files."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


def test_a_packaged_agent_learns_without_a_model(tmp_path: Path) -> None:
    """From `rlfactory new`: the tiny model learns from what `solve` says to the agent, then by GRPO."""
    made = tmp_path / "mine.py"
    assert finish(start("new", made, "--template", "agent"), LIMIT_S).code == 0
    run = tmp_path / "run"
    outcome = finish(start("run", "--plugin", made, "--out", run, "--steps", "8", *FEW), LIMIT_S)
    assert outcome.code == 0, outcome.out
    rewards = [row["reward"] for row in metrics(run)]
    assert sum(rewards[-3:]) > sum(rewards[:3]) + 0.2, rewards
    assert "rlfactory-agents:agents" in read_json(RunFolder(run).plugins_lock)  # workers compare its files
    found = summary(run)["eval"]
    assert found["after"]["sampled/exact_match"] > found["before"]["sampled/exact_match"]
    verified = finish(start("trace", run, "--verify"), LIMIT_S)
    assert "No problems found" in verified.out
    stopped = finish(start("run", "--resume", run, "--steps", "9"), LIMIT_S)
    assert stopped.code == 0, stopped.out
    assert len(metrics(run)) == 9


def test_a_program_is_trained_on_data_alone(tmp_path: Path, tiny_model: Path) -> None:
    """With a model that knows nothing: what the program does with it is recorded, and its failures are scored."""
    program, data, run = (tmp_path / name for name in ("agent.py", "train.jsonl", "run"))
    program.write_text(PROGRAM)
    rows = [{"prompt": f"Question {number}?", "answer": str(number)} for number in range(8)]
    data.write_text("\n".join(map(json.dumps, rows)))
    given = ("--data", data, "--eval-data", data, "data.columns.answer=answer", "--reward", "exact_match")
    model = ("--model", tiny_model, "--agent", f"{sys.executable} {program}")
    limits = ("rollout.max_turn_tokens=24", "rollout.max_tokens=400", "eval.sampled=false", "--out", run)
    outcome = finish(start("run", *model, *given, *SMALL, *limits), LIMIT_S)
    assert outcome.code == 0, outcome.out
    played = trajectories(run, "step-000001") + trajectories(run, "step-000002")
    assert len(played) == 32
    for each in played:
        liked = each["sample"]["id"] != "0"
        assert each["stop"] == ("final_answer" if liked else "agent_failed")
        assert len(each["turns"]) == 1 + liked
        assert liked or "I do not like" in each["faults"][0]["message"]
    assert all(row["masked"] == 0 for row in metrics(run))
