"""Rewards that use a model which verl serves in a separate pool beside the policy."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from runs import TINY_TASK, finish, metrics, start, summary, wait_until
from verl_runs import LIMIT_S, VERL, rlfactory

pytest.importorskip("verl", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("vllm", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("rlfactory_judge", reason="the judge: python -m pip install -e plugins/rlfactory-judge")
from tiny_judge import tiny_judge

pytest_plugins = ("verl_runs",)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_of_verl_left")]

STOPPED = 130
SMALL = (
    *("train.prompts_per_step=2", "train.group_size=2", "train.schedule=constant"),
    *("eval.limit=2", "eval.sampled=false", "checkpoint.every=1"),
)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_judge(tmp_path_factory.mktemp("judge"))


def written(folder: Path, *rewards: Mapping[str, Any]) -> Path:
    """A run's configuration with these rewards."""
    path = folder / "run.yaml"
    config = {"plugin": TINY_TASK, "task": {"head_dim": 32}, "rewards": rewards}
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def scores(run: Path) -> list[dict[str, Any]]:
    """Of all trajectories that were trained on."""
    files = sorted((run / "trajectories").glob("step-*.jsonl"))
    return [json.loads(line)["score"] for path in files for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_judge_in_verls_pool(judge: Path, tmp_path: Path) -> None:
    """With a reward of a test's own that shares the pool, a rule and a verifier, all at once, until Ctrl-C.

    What the model says is held to its form by vLLM, so that every attempt has a score.
    """
    run, names = tmp_path / "run", ["judge", "asked", "exact_match", "looked"]
    served = {"model": str(judge), "placement": "pool", "output": "json", "cache": "off", "max_tokens": 64}
    config = written(
        tmp_path,
        {"name": "judge", **served},
        {"name": "asked", "weight": 0.5, "model": str(judge)},
        *({"name": name, "weight": 0.1} for name in names[2:]),
    )
    given = ("--config", config, *VERL, "--steps", "50", "--out", run, *SMALL)
    shown = rlfactory("run", *given, "--dry-run").out.splitlines()
    told = [line.split() for line in shown if line.startswith("# rewards.judge, rewards.asked")]
    assert ["reward.reward_model.model_path", f"'{judge}'"] in [words[-2:] for words in told]
    assert not run.exists()

    process = start("run", *given)
    wait_until(lambda: len(metrics(run)) >= 1, process, LIMIT_S)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    stopped = finish(process, LIMIT_S)
    assert stopped.code == STOPPED, stopped.out
    done = len(metrics(run))
    assert f"Stopped after step {done}" in stopped.out
    assert (run / "checkpoints" / "latest").resolve().name == "huggingface"

    rows = metrics(run)
    assert [(row["step"], row["masked"]) for row in rows] == [(step, 0) for step in range(1, done + 1)]
    assert all(set(names) <= set(row) for row in rows)
    assert set(names) <= set(summary(run)["eval"]["before"])
    found = scores(run)
    assert len(found) == 4 * done
    for score in found:
        assert set(names) <= set(score["components"])
        assert score["verdicts"]["judge"]["reasons"]
        assert score["seconds"] < sum(score["latency_s"].values())
