"""The generic task in verl, with rollouts and updates at once: tools of an MCP server, started by verl's processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from colour_server import COLOURS
from mcp_runs import Servers, results, trajectories
from runs import TINY_TASK, finish, metrics, start, summary, wait_until
from verl_runs import LIMIT_S, VERL, own_model

pytest.importorskip("verl", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("vllm", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")
pytest_plugins = ("mcp_runs", "verl_runs")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_of_verl_left")]

STOPPED = 130


@pytest.fixture(scope="module")
def policy(cache: Path) -> Path:
    """Made before the test: what torch and Python start for it stays until this process ends."""
    return own_model(TINY_TASK, head_dim=32)


def test_the_trajectories_have_the_servers_results_until_ctrl_c(
    policy: Path, servers: Servers, data: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = start(
        "run", *VERL, "--model", policy, "--mcp", servers.config, "--system", "",
        "--steps", "50", "--data", data, "--eval-data", data, "data.columns.answer=answer", "--reward", "exact_match",
        "--out", run, "verl.mode=separate_async", "train.updates_per_step=2", "train.staleness=1",
        "train.schedule=constant", "rollout.max_turns=3", "rollout.max_turn_tokens=40", "rollout.max_tokens=320",
        "train.prompts_per_step=4", "train.group_size=8", "train.lr=1e-3", "eval.sampled=false", "verl.agent_workers=2",
    )  # fmt: skip
    wait_until(lambda: len(metrics(run)) >= 2, process, LIMIT_S)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    stopped = finish(process, LIMIT_S)
    assert stopped.code == STOPPED, stopped.out
    rows = metrics(run)
    done = len(rows)
    assert f"Stopped after step {done}" in stopped.out
    assert (run / "checkpoints" / "latest").resolve().name == "huggingface"
    assert [row["step"] for row in rows] == list(range(1, done + 1))
    assert all(row["tool/search/calls"] > 0 for row in rows)
    assert all(row["masked"] == 0 for row in rows)
    assert all(row["grad_norm"] > 0 for row in rows)  # weights passed on
    assert all(row["staleness"] <= 1 for row in rows)
    played = trajectories(run, "step-000001") + trajectories(run, "step-000002")
    assert len(played) == 64
    found = [result for trajectory in played for result in results(trajectory)]
    assert {result["content"] for result in found} & {f"1: {colour}" for colour in COLOURS.values()}
    assert len(servers.queries) >= sum(result["attempts"] for result in found) > 0
    assert len(servers.started) == 2  # the machine's check, and all rollout processes together
    told = summary(run)  # of a run that was stopped, too
    assert "exact_match" in told["eval"]["before"]
    assert (told["engine"], told["mode"], told["gpus"]) == ("verl", "separate_async", 2)
