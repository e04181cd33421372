"""A step's numbers and where they go."""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from reporting_examples import infra_fault, make_group, make_trajectory

from rlfactory_core.algo.evaluation import summarise
from rlfactory_core.errors import MissingExtraError, UsageError
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.loggers import check_loggers, open_loggers
from rlfactory_core.reporting.metrics import component_means, eval_metrics, group_metrics, tool_metrics
from rlfactory_core.types import Fault, FaultKind, Group, Score, ToolResult, ToolSpec


def test_means_by_slice_counts_and_equal_groups() -> None:
    groups = [make_group([1.0, 0.0], hops="two_hop"), make_group([1.0, 1.0], hops="one_hop", sample="q2")]
    metrics = group_metrics(groups)
    assert metrics["reward"] == pytest.approx(0.75)
    assert metrics["reward_std"] == pytest.approx(0.4330127)
    assert (metrics["exact_match"], metrics["exact_match/one_hop"], metrics["exact_match/two_hop"]) == (0.75, 1.0, 0.5)
    assert (metrics["format"], metrics["tool_calls"], metrics["turns"]) == (1.0, 1.0, 2.0)
    assert metrics["stop/final_answer"] == 1.0
    assert metrics["stop/length"] == 0.0
    assert (metrics["equal_groups"], metrics["masked"]) == (1.0, 0.0)


def test_masked_trajectories_are_counted_but_never_scored() -> None:
    good, spoilt = make_trajectory(1.0), make_trajectory(0.0, faults=(infra_fault(),), attempt=1)
    metrics = group_metrics([Group(good.sample, (good, spoilt))])
    assert metrics["reward"] == metrics["exact_match"] == 1.0
    assert (metrics["masked"], metrics["faults/infra"], metrics["equal_groups"]) == (1.0, 1.0, 1.0)
    assert (metrics["masked/search"], metrics["masked_groups"]) == (1.0, 1.0)
    assert math.isnan(group_metrics([Group(good.sample, (spoilt,))])["reward"])


def test_what_failed_scorers_did_is_counted_by_scorer() -> None:
    good, spoilt = make_trajectory(1.0), make_trajectory(0.0, attempt=1)
    assert good.score is not None
    late = Fault(FaultKind.VERIFIER, "judge", "late")
    good = replace(good, score=replace(good.score, counts={"judge.requests": 1.0}))
    spoilt = replace(spoilt, faults=(late, infra_fault()), score=Score(0.0, counts={"judge.requests": 3.0}))
    groups = [Group(good.sample, (good, spoilt))]
    metrics = group_metrics(groups)
    assert (metrics["faults/verifier"], metrics["faults/verifier/judge"]) == (1.0, 1.0)
    assert metrics["counts/judge.requests"] == 4.0
    assert eval_metrics(groups)["eval/counts/judge.requests"] == 4.0
    assert eval_metrics(groups)["eval/exact_match/two_hop"] == 1.0
    assert not any(name.startswith(("counts/", "faults/verifier/")) for name in group_metrics([make_group([1.0, 0.0])]))


def test_a_call_counts_if_it_could_be_read_and_the_tool_took_it() -> None:
    good, silent = make_trajectory(), make_trajectory(calls=0, attempt=1)
    turn = good.turns[0]
    broken = replace(turn.message.tool_calls[0], arguments=None, error="not JSON")
    unread = replace(turn, message=replace(turn.message, tool_calls=(broken,)))
    refused = replace(turn, results=(replace(turn.results[0], fault=FaultKind.POLICY),))
    attempts = (good, *(replace(good, turns=(first, good.turns[1])) for first in (unread, refused)), silent)
    metrics = group_metrics([Group(good.sample, attempts)])
    assert (metrics["called"], metrics["unparsed"]) == (0.25, 0.25)
    assert eval_metrics([Group(good.sample, attempts)])["eval/called"] == 0.25
    assert summarise([Group(good.sample, attempts)])["called"] == 0.25
    toolless = [Group(good.sample, (replace(silent, tools=()),))]
    assert "called" not in group_metrics(toolless) | summarise(toolless)


def test_names_are_the_same_in_every_step() -> None:
    first, second = group_metrics([make_group([1.0, 0.0])]), group_metrics([make_group([0.0, 0.0])])
    assert list(first) == list(second)
    assert not any(name.endswith("_s") for name in first)  # nothing here is wall-clock time


def test_tool_calls_are_counted_by_tool_and_those_that_do_not_exist_together() -> None:
    base = make_trajectory(1.0)
    results = (
        ToolResult("a", "search", "x", latency_s=0.1, size_bytes=4),
        ToolResult("b", "search", "x", latency_s=0.3, cached=True, attempts=0),
        ToolResult("c", "search", "no", FaultKind.POLICY, latency_s=0.2, attempts=0),
        ToolResult("d", "serch", "no", FaultKind.POLICY, latency_s=0.0, attempts=0),
    )
    tools = (ToolSpec("search", "", {"type": "object"}),)
    metrics = tool_metrics([replace(base, tools=tools, turns=(replace(base.turns[0], results=results),))])
    assert metrics["tool/search/calls"] == 3
    assert metrics["tool/search/attempts"] == 1
    assert metrics["tool/search/cache_hit_rate"] == pytest.approx(1 / 3)
    assert (metrics["tool/search/faults_policy"], metrics["tool/search/faults_infra"]) == (1, 0)
    assert (metrics["tool/search/latency_p50_s"], metrics["tool/search/latency_max_s"]) == (0.2, 0.3)
    assert metrics["tool/unknown/calls"] == metrics["tool/unknown/faults_policy"] == 1
    assert metrics["tools/cache_hit_rate"] == 0.25
    assert tool_metrics([replace(base, turns=())]) == {}


def test_an_unknown_logger_gets_the_nearest_name_and_a_missing_one_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match="Did you mean 'tensorboard'"):
        check_loggers(["tensorbord"])
    monkeypatch.setattr("rlfactory_core.reporting.loggers.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install wandb"):
        check_loggers(["wandb"])


def test_metrics_jsonl_is_always_written_and_a_resume_cuts_it(tmp_path: Path) -> None:
    folder = RunFolder.create("search", root=tmp_path)
    first = open_loggers((), folder, {})
    for step in (1, 2, 3):
        first.log(step, {"reward": step})
    first.close()
    again = open_loggers((), folder, {}, resume_step=1)
    again.log(2, {"reward": 20})
    again.close()
    assert [(row["step"], row["reward"]) for row in folder.read_metrics()] == [(1, 1), (2, 20)]


def _installed(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


@_installed("tensorboard")
def test_tensorboard_reads_back_what_was_logged_also_after_a_resume(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = RunFolder.create("search", root=tmp_path)
    loggers = open_loggers(["tensorboard"], folder, {"seed": 1})
    for step in (1, 2, 3):
        loggers.log(step, {"reward": step / 2, "loss": math.nan})
    loggers.close()
    resumed = open_loggers(["tensorboard"], folder, {"seed": 1}, resume_step=2)
    resumed.log(3, {"reward": 9.0})
    resumed.close()
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["reward"]
    assert [(event.step, event.value) for event in events.Scalars("reward")] == [(1, 0.5), (2, 1.0), (3, 9.0)]


@_installed("wandb")
def test_wandb_offline_keeps_the_run_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb"))
    folder = RunFolder.create("search", root=tmp_path)
    loggers = open_loggers(["wandb"], folder, {"seed": 1})
    loggers.log(1, {"reward": 0.5})
    loggers.close()
    files = list((folder.path / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 1
    assert files[0].stat().st_size > 0


@_installed("trackio")
def test_trackio_stores_the_run_locally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    folder = RunFolder.create("search", root=tmp_path)
    loggers = open_loggers(["trackio"], folder, {"seed": 1})
    loggers.log(1, {"reward": 0.5})
    loggers.close()
    databases = list((tmp_path / "trackio").rglob("*.db"))
    assert len(databases) == 1
    with sqlite3.connect(databases[0]) as connection:
        rows = connection.execute("select run_name, step, metrics from metrics").fetchall()
    assert len(rows) == 1
    assert rows[0][:2] == (folder.name, 1)
    assert json.loads(rows[0][2])["reward"] == 0.5


def test_an_evaluations_means_leave_masked_trajectories_out() -> None:
    """What spoilt them is not the policy's fault: they are no zeros."""
    trajectories = [make_trajectory(1.0), make_trajectory(0.0, attempt=1, faults=(infra_fault(),))]
    assert component_means(trajectories) == {
        "exact_match": 1.0,
        "exact_match/two_hop": 1.0,
        "format": 1.0,
        "format/two_hop": 1.0,
    }
