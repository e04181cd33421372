"""GRPO with the verl engine for real, on the CPU: verl's trainer, vLLM and Ray, with a limit and nothing left."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from runs import finish, metrics, start, summary, wait_until
from verl_runs import LIMIT_S, VERL, rlfactory

pytest.importorskip("verl", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("vllm", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest_plugins = ("verl_runs",)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_of_verl_left")]


def test_grpo_learns_and_survives_a_kill(tmp_path: Path) -> None:
    """The search task from its warm-started policy, with evaluations before, during and after."""
    run = tmp_path / "run"
    options = ("--steps", "6", "train.schedule=constant", "checkpoint.every=2", "eval.every=4", "eval.limit=40")
    process = start("run", "--plugin", "search", *VERL, "--out", run, *options, "eval.attempts=1")
    wait_until(lambda: len(metrics(run)) >= 3, process, LIMIT_S)
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    assert len(metrics(run)) < 6
    before = summary(run)["eval"]["before"]
    assert before["exact_match/two_hop"] < 0.2

    changed = (run / "plugins.lock.json").read_text()
    other = json.loads(changed)
    print_ = next(item for item in other.values() if item["distribution"] == "rlfactory-search")
    print_["files"]["rlfactory_search/task.py"] = "0" * 64
    (run / "plugins.lock.json").write_text(json.dumps(other))
    refused = finish(start("run", "--resume", run), LIMIT_S)
    assert refused.code == 2
    assert "rlfactory_search/task.py" in refused.out
    assert "Traceback" not in refused.out
    (run / "plugins.lock.json").write_text(changed)

    rlfactory("run", "--resume", run)
    rows = metrics(run)
    assert [row["step"] for row in rows] == list(range(1, 7))
    assert max(row["rollout_probs_diff_max"] for row in rows) < 1e-4  # verl's own figure, vLLM against the trainer
    assert "eval/exact_match" in rows[3]
    found = summary(run)
    assert found["engine"] == "verl"
    assert found["eval"]["before"] == before
    assert found["eval"]["after"]["exact_match"] > before["exact_match"] + 0.05
    assert found["eval"]["after"]["control/no_results/exact_match"] <= 0.05
    assert found["steps"] == 6
    assert_contract(run, steps=6)
    measured = rlfactory("eval", "--plugin", "search", "--model", run, "eval.limit=10", "eval.sampled=false").out
    assert "exact match" in measured


def assert_contract(run: Path, steps: int) -> None:
    """The folder is the local engine's, and the policy a Hugging Face folder."""
    from transformers import AutoModelForCausalLM

    names = {path.name for path in run.iterdir() if not path.name.startswith(".")}
    assert names >= {"config.yaml", "plugins.lock.json", "metrics.jsonl", "summary.json", "report.html"}
    last = run / "trajectories" / f"step-{steps:06d}.jsonl"
    assert len(last.read_text().splitlines()) == 128
    assert {"eval-before.jsonl", "eval-after.jsonl"} <= {path.name for path in last.parent.iterdir()}
    latest = run / "checkpoints" / "latest"
    assert latest.resolve() == (run / "checkpoints" / f"step-{steps}").resolve()
    assert sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(latest).parameters()) == 323_840
    assert not (run / ".events.jsonl").exists()
