"""``rlfactory run --warm-start FILE|RUN``: what a run did, exported or not, is what another run learns from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import TINY_TASK, Cli, metrics

from rlfactory_core.cli.main import invoke
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.types import Trajectory

pytestmark = pytest.mark.slow
COMMON = ("run", "--plugin", TINY_TASK, "eval.limit=1", "eval.sampled=false", "train.workers=1")
RUN = (*COMMON, "train.prompts_per_step=4", "train.group_size=4", "--steps", "1")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("sources") / "first"
    assert invoke([*RUN, "train.method=rft", "train.where=turns > 0", "--out", str(run)]) == 0
    return run


def attempts(run: Path) -> list[Trajectory]:
    folder = RunFolder(run)
    return [each.trajectory for step in folder.trajectory_steps() for each in folder.read_trajectories(step)]


def warm_started(cli: Cli, source: Path, where: str, out: Path) -> list[Trajectory]:
    stages = json.dumps([{"method": "sft", "source": str(source), "where": where, "steps": 2, "prompts_per_step": 3}])
    outcome = cli(*COMMON, f"stages={stages}", "--out", out)
    assert outcome.code == 0, outcome.err
    rows = metrics(out)
    assert [row["learnt_from"] for row in rows] == [3.0, 3.0]
    assert rows[0]["nll"] > 0
    return attempts(out)


def test_a_run_is_learnt_from_with_its_ids(cli: Cli, first: Path, tmp_path: Path) -> None:
    known = {each.ids for each in attempts(first) if each.num_tool_calls}
    learnt = warm_started(cli, first, "tool_calls >= 1", tmp_path / "second")
    assert len(known) > 1
    assert {each.ids for each in learnt} <= known


def test_an_exported_file_is_learnt_from_as_the_run_was_played(cli: Cli, first: Path, tmp_path: Path) -> None:
    exported = tmp_path / "sft.jsonl"
    assert cli("trace", first, "--export", exported, "--where", "tool_calls >= 1").code == 0
    known = {tuple(turn.message.content for turn in each.turns) for each in attempts(first)}
    learnt = warm_started(cli, exported, "tool_calls >= 1", tmp_path / "second")
    assert {tuple(turn.message.content for turn in each.turns) for each in learnt} <= known
    prompts = {each.turns[0].context_ids for each in attempts(first)}
    assert {each.turns[0].context_ids for each in learnt} <= prompts


def test_what_names_no_source_is_refused_before_anything_is_opened(cli: Cli, first: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"messages": [{"role": "user", "content": "Who?"}]}\n')
    assert "row 0 (from 0) has no turn" in cli.refusal(*RUN, "--warm-start", broken)
    refused = cli.refusal(*RUN, "--warm-start", "demos.jsonl")
    assert "expected solve (the task's own solutions), a file of traces" in refused
    good = tmp_path / "good.jsonl"
    good.write_text('{"prompt": "Who?", "completion": "Ann."}\n')
    refused = cli.refusal(*RUN, "--warm-start", good, "--where", "reward > 0")
    assert "traces in a file are not scored, so they have no reward" in refused
    assert "keeps none of" in cli.refusal(*RUN, "--warm-start", first, "--where", "tool_calls > 99")
