"""The README's first command in small: a warm start, twenty steps, and a policy that has learnt to search twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from run_fixtures import cache

__all__ = ("cache",)  # its warm-started model serves other sessions' tests too

pytestmark = pytest.mark.slow


def test_a_short_run_learns_what_takes_two_searches(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the embedded engine needs rlfactory-core[local]")
    run = tmp_path / "run"
    command = [sys.executable, "-m", "rlfactory_core", "run", "--plugin", "search", "--steps", "20", "--out", str(run)]
    done = subprocess.run(
        [*command, "rollout.deterministic=true", "eval.limit=80"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

    results = json.loads((run / "summary.json").read_text(encoding="utf-8"))["eval"]
    before, after = results["before"], results["after"]
    assert before["exact_match/two_hop"] <= 0.1
    assert after["exact_match/two_hop"] >= 0.4
    assert after["sampled/exact_match"] - before["sampled/exact_match"] >= 0.2
    assert after["control/no_results/exact_match"] <= 0.05  # the answers come from the tool
    assert "Held-out exact match (greedy) rose from" in done.stdout
    assert len((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()) == 20
    assert (run / "checkpoints" / "latest" / "model.safetensors").exists()
