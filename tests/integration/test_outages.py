"""A tool without answers does not teach the policy not to call it: what is left of a step is a selection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import TINY_TASK, Cli, checkpoints, metrics, summary

from rlfactory_core.training import stopping

pytestmark = pytest.mark.slow

OPTIONS = ("tools.retries=0", "train.workers=1", "train.prompts_per_step=16", "train.group_size=8")


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "PAUSE_S", 0.0)


def run(cli: Cli, out: Path, *options: str, steps: int = 12) -> tuple[int, str]:
    outcome = cli("run", "--plugin", TINY_TASK, "--out", out, "--steps", steps, *OPTIONS, *options)
    return outcome.code, " ".join(f"{outcome.out} {outcome.err}".split())


def calling(run: Path, step: int) -> float:
    """The share of a step's episodes that call the tool."""
    lines = (run / "trajectories" / f"step-{step:06d}.jsonl").read_text(encoding="utf-8").splitlines()
    called = [any(turn["message"].get("tool_calls") for turn in json.loads(line)["turns"]) for line in lines]
    return sum(called) / len(called)


def test_the_policy_goes_on_calling_a_tool_of_which_some_calls_are_lost(cli: Cli, tmp_path: Path) -> None:
    healthy = tmp_path / "healthy"
    assert run(cli, healthy)[0] == 0
    assert calling(healthy, 1) < 0.6
    assert calling(healthy, 12) > 0.8  # it learns to call
    for lost in (0.05, 0.2):
        out = tmp_path / f"lost-{lost}"
        assert run(cli, out, f"task.lost={lost}")[0] == 0
        masked = sum(row.get("masked/search", 0) for row in metrics(out))
        assert masked > 0 or lost < 0.1  # what is played again is seldom lost twice
        assert calling(out, 12) >= calling(healthy, 12) - 0.1
        assert summary(out)["eval"]["after"]["exact_match"] >= summary(healthy)["eval"]["after"]["exact_match"] - 0.1


def test_a_dead_tool_stops_the_run_before_anything_is_learnt_from_it(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, said = run(cli, out, "task.lost=1", "train.max_skipped=3")
    assert code == 1
    assert said.count("trajectories were masked: search") >= 3
    assert "were lost. No update; it is played again in 0 s." in said
    assert "Step 1 was played 3 times, and each time more than a third of it was masked, or of those that" in said
    assert "mend the cause, then go on with --resume" in said.lower()
    assert metrics(out) == []


def test_a_tool_that_begins_to_fail_stops_the_run_before_the_policy_forgets_it(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, said = run(cli, out, "task.fails_after=150", "train.max_skipped=3")
    assert code == 1
    assert "search failed for each of the last" in said
    assert "RuntimeError: the corpus is locked" in said
    assert "mend the cause, then go on with --resume" in said.lower()
    assert 1 <= len(metrics(out)) < 12
    assert calling(out, len(metrics(out))) >= calling(out, 1) - 0.1


def test_a_step_is_played_again_until_the_tool_is_back(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, said = run(cli, out, "task.down_for=80", "tools.breaker_failures=1000", "rollout.retries=0", steps=2)
    assert code == 0, said
    first, second = metrics(out)
    assert first["replays"] >= 1
    assert second["replays"] == 0
    assert first["masked"] <= 128 / 3
    assert summary(out)["replays"] == first["replays"]
    assert checkpoints(out)[-1] == "step-2"
