"""Training without a plugin: the user's data, and tools of an MCP server that is started by the run."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from colour_server import COLOURS
from fake_openai import Reply, said, serve
from mcp_runs import Servers, results, trajectories
from runs import TINY_TASK, Cli, finish, metrics, start, summary, wait_until

from rlfactory_core.cli.main import invoke
from rlfactory_core.tasks.generic import SYSTEM

pytest.importorskip("rlfactory_mcp", reason="needs rlfactory-core[mcp]")
pytest_plugins = ("mcp_runs",)

LIMITS = ("rollout.max_turns=3", "rollout.max_turn_tokens=40", "rollout.max_tokens=320")
TRAIN = ("train.lr=1e-3", "train.muon_lr=3e-3", "train.prompts_per_step=4", "train.group_size=8", "eval.every=0")


@pytest.fixture
def own(tiny_model: Path, servers: Servers, data: Path) -> tuple[object, ...]:
    """The command line without a plugin; the model was warm-started without a system message."""
    given = ("--mcp", servers.config, "--data", data, "--eval-data", data, "data.columns.answer=answer")
    return (*given, "--model", tiny_model, "--reward", "exact_match", "--reward", "format=0.1", "--system", "", *LIMITS)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_model_learns_to_use_a_server_s_tool(
    cli: Cli, own: tuple[object, ...], servers: Servers, tmp_path: Path, workers: int
) -> None:
    run = tmp_path / "run"
    outcome = cli("run", *own, *TRAIN, "--steps", "12", f"train.workers={workers}", "--out", run)
    assert outcome.code == 0, outcome.err
    assert len(servers.started) == 1
    assert set(servers.queries) & set(COLOURS)
    played = [item for step in range(1, 13) for item in trajectories(run, f"step-{step:06d}")]
    assert len(played) == 12 * 4 * 8
    found = [result for item in played for result in results(item)]
    assert {f"1: {colour}" for colour in COLOURS.values()} <= {result["content"] for result in found}
    assert sum(row["tool/search/calls"] for row in metrics(run)) == len([r for r in found if r["name"] == "search"])
    rewards = [row["reward"] for row in metrics(run)]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2, rewards
    assert summary(run)["plugin"] == "tools"
    assert set(summary(run)["eval"]["after"]) >= {"exact_match", "sampled/exact_match", "format"}


@pytest.mark.slow
def test_a_run_goes_on_from_another_folder(
    cli: Cli, own: tuple[object, ...], servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paths were given relative to the folder where the run began."""
    run = tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    relative = [part.name if isinstance(part, Path) and part.parent == tmp_path else part for part in own]
    small = ("train.group_size=2", "train.prompts_per_step=2", "eval.limit=2", "eval.sampled=false")
    assert cli("run", *relative, *small, "--steps", "1", "--out", run).code == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    outcome = cli("run", "--resume", run, "--steps", "2")
    assert outcome.code == 0, outcome.err
    assert len(servers.started) == 2
    assert [row["step"] for row in metrics(run)] == [1, 2]
    measured = cli("eval", "--model", run, "--samples", "2", "--json", "eval.sampled=false")
    assert json.loads(measured.out)["plugin"] == "tools"


@pytest.mark.slow
def test_a_task_keeps_the_servers_tools_beside_its_own_and_in_its_controls(
    cli: Cli, tiny_model: Path, servers: Servers, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    both = ("--plugin", TINY_TASK, "--mcp", servers.config, "--model", tiny_model)
    measured = cli("eval", *both, "--samples", "2", "eval.attempts=1", "rollout.max_turn_tokens=8", "--out", run)
    assert measured.code == 0, measured.err
    for name in ("eval-after", "control-no_results"):
        offered = [[tool["name"] for tool in item["tools"]] for item in trajectories(run, name)]
        assert offered
        assert all(names == ["search", "colours_search"] for names in offered)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_cannot_start_ends_the_run_with_its_words(
    cli: Cli, own: tuple[object, ...], servers: Servers, tmp_path: Path, workers: int
) -> None:
    shutil.rmtree(servers.folder)
    run = tmp_path / "run"
    message = cli.refusal("run", *own, f"train.workers={workers}", "--steps", "1", "--out", run)
    assert "'colours'" in message
    assert f"There is no folder {servers.folder}." in message  # on the server's own standard error
    assert not run.exists()


def test_rlfactory_tools_starts_and_stops_the_server(cli: Cli, servers: Servers) -> None:
    listed = cli("tools", "list", "--mcp", servers.config)
    assert listed.out.startswith("search  (MCP server colours)\n  Search the corpus.\n")
    called = cli("tools", "call", "search", "query=Doru", "--mcp", servers.config)
    assert (called.code, called.out) == (0, "1: blue\n")
    assert servers.queries == ["Doru"]
    assert len(servers.started) == 2


@pytest.mark.slow
def test_ctrl_c_during_a_call_by_hand_leaves_no_server(servers: Servers) -> None:
    process = start("tools", "call", "search", "query=a wait", "--mcp", servers.config, "tools.deadline_s=600")
    wait_until(lambda: bool(servers.queries), process, 60)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert finish(process, 60).code == 130


def test_a_served_model_is_measured_with_a_server_s_tools(servers: Servers, data: Path, tmp_path: Path) -> None:
    """No torch, no plugin: an endpoint that looks every thing up and repeats what it is told."""

    def oracle(body: Mapping[str, Any]) -> Reply:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return said(f"<answer>{last['content'].removeprefix('1: ')}</answer>")
        thing = last["content"].removeprefix("What colour is ").rstrip("?")
        return said(None, ("search", json.dumps({"query": thing})))

    run = tmp_path / "run"
    given = ("--mcp", servers.config, "--data", data, "data.columns.answer=answer", "--reward", "exact_match")
    with serve(oracle) as server:
        assert invoke(["eval", "--api", server.url, *map(str, given), "--out", str(run), "eval.sampled=false"]) == 0
    assert summary(run)["eval"]["after"]["exact_match"] == 1.0
    told = trajectories(run, "eval-after")[0]["sample"]["prompt"][0]
    assert (told["role"], told["content"]) == ("system", SYSTEM)
    assert len(servers.started) == 1
