"""Whole runs of the embedded engine with a judge among the rewards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_openai import Answer, FakeServer, error, serve
from judged_task import SECONDS, judge_of_colours
from runs import Cli, metrics, summary, write_lines

pytest.importorskip("rlfactory_judge", reason="the judge's plugin is not installed")
pytestmark = pytest.mark.slow

TASK = str(Path(__file__).parents[1] / "support" / "judged_task.py")
SMALL = ("train.prompts_per_step=2", "train.group_size=4", "eval.limit=2", "eval.sampled=false")


@pytest.fixture
def judged(cli: Cli, tiny_model: Path, tmp_path: Path) -> Any:
    """Runs the tiny task with these rewards beside a judge's options; gives the outcome and the run's folder."""

    def run(judge: Mapping[str, Any], *rewards: Mapping[str, Any], steps: int = 2, workers: int = 1) -> Any:
        out = tmp_path / "run"
        listed = json.dumps([{"name": "judge", "cache": "off", **judge}, *rewards])
        model = ("--model", tiny_model, "--steps", steps, "--out", out, "train.lr=1e-3")
        return cli("run", "--plugin", TASK, *model, *SMALL, f"train.workers={workers}", f"rewards={listed}"), out

    return run


def trajectories(run: Path) -> list[dict[str, Any]]:
    """Those of training."""
    lines = [line for path in sorted((run / "trajectories").glob("step-*")) for line in _lines(path)]
    assert lines, sorted((run / "trajectories").iterdir())
    return lines


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def slow_judge() -> Answer:
    return judge_of_colours(SECONDS)


def questions(server: FakeServer) -> int:
    """What the judge was asked, without the service's own questions at the start."""
    return sum("<quoted:" in str(body["messages"]) for body in server.requests)


def test_two_judges_in_one_run_have_names_of_their_own(judged: Any) -> None:
    with serve(slow_judge()) as server:
        second = {"name": "judge", "label": "rank", "mode": "ranking", "url": server.url, "cache": "off", "weight": 0.5}
        outcome, run = judged({"url": server.url}, second, steps=1)

    assert outcome.code == 0, outcome.err
    for trajectory in trajectories(run):
        assert {"judge", "rank"} <= set(trajectory["score"]["components"])
        assert len(trajectory["score"]["verdicts"]) == 2


def test_a_judge_rules_and_a_verifier_score_one_attempt_at_the_same_time(judged: Any, cli: Cli) -> None:
    rules = ({"name": "exact_match", "weight": 0.5}, {"name": "format", "weight": 0.1})
    with serve(slow_judge()) as server:
        outcome, run = judged({"url": server.url}, *rules, {"name": "looks_it_up", "weight": 0.2})

    assert outcome.code == 0, outcome.err
    for row in trajectories(run):
        score = row["score"]
        assert set(score["components"]) == {"judge", "exact_match", "format", "looks_it_up"}
        weighed = {"judge": 1.0, "exact_match": 0.5, "format": 0.1, "looks_it_up": 0.2}
        assert row["reward"] == pytest.approx(sum(score["components"][name] * w for name, w in weighed.items()))
        assert 0.0 <= score["components"]["judge"] <= 1.0
        assert score["verdicts"]["judge"]["data"]["endpoint"]
        assert score["verdicts"]["judge"]["reasons"][0].startswith('{"score"')
        assert score["verdicts"]["looks_it_up"]["reasons"]
        assert min(score["latency_s"]["judge"], score["latency_s"]["looks_it_up"]) >= 0.9 * SECONDS
        assert score["seconds"] < sum(score["latency_s"].values())
        assert not row["masked"]
    last = metrics(run)[-1]
    assert last["masked"] == 0
    assert last["counts/judge.requests"] > 0
    assert last["counts/judge.sampled_tokens"] > 0
    shown = cli("trace", run).out
    assert '{"score"' in shown
    assert "scoring" in shown


def test_a_storm_of_server_errors_masks_and_the_run_goes_on(judged: Any) -> None:
    calm = judge_of_colours()
    asked = 0

    def stormy(body: Mapping[str, Any]) -> Any:
        nonlocal asked
        asked += "<quoted:" in str(body["messages"])
        return error(503, "overloaded") if asked % 5 == 0 and asked else calm(body)  # far from a third

    with serve(stormy) as server:
        outcome, run = judged({"url": server.url, "retries": 0}, {"name": "exact_match", "weight": 0.5}, steps=3)

    assert outcome.code == 0, outcome.err
    rows = trajectories(run)
    masked = [row for row in rows if row["masked"]]
    assert 0 < len(masked) < len(rows)
    for row in masked:
        assert [fault["source"] for fault in row["faults"] if fault["kind"] == "verifier"] == ["judge"]
        assert "judge" not in row["score"]["components"]
    assert all("judge" in row["score"]["components"] for row in rows if not row["masked"])
    assert sum(row["masked"] for row in metrics(run)) == len(masked)
    kinds = ("unavailable", "refused")  # the second where others were answered meanwhile
    assert sum(row.get(f"counts/judge.{kind}", 0) for row in metrics(run) for kind in kinds) == len(masked)
    assert summary(run)["steps"] == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_a_spent_budget_stops_the_run_and_a_larger_one_lets_it_go_on(judged: Any, cli: Cli, workers: int) -> None:
    with serve(judge_of_colours()) as server:
        budget = {"url": server.url, "token_budget": 2200, "max_tokens": 100, "on_budget": "stop"}
        outcome, run = judged(budget, {"name": "exact_match", "weight": 0.5}, steps=8, workers=workers)

        assert outcome.code == 130
        assert "token_budget of 2200 is spent" in outcome.err + outcome.out
        assert "config.yaml" in outcome.err + outcome.out
        assert f"rlfactory run --resume {run}" in outcome.err + outcome.out
        done = len(metrics(run))
        assert 0 < done < 8
        assert questions(server) < 40

        config = run / "config.yaml"
        config.write_text(config.read_text(encoding="utf-8").replace("2200", "1000000"), encoding="utf-8")
        outcome = cli("run", "--resume", run)

    assert outcome.code == 0, outcome.err
    assert [row["step"] for row in metrics(run)] == list(range(1, 9))
    assert metrics(run)[-1]["masked"] == 0


@pytest.mark.parametrize("mode", ["ranking", "pairwise"])
def test_comparing_a_groups_attempts_trains(judged: Any, mode: str) -> None:
    with serve(judge_of_colours()) as server:
        outcome, run = judged({"url": server.url, "mode": mode}, {"name": "exact_match", "weight": 0.0}, steps=3)

    assert outcome.code == 0, outcome.err
    rows = trajectories(run)
    assert len({row["score"]["components"]["judge"] for row in rows}) > 1
    assert all(row["masked"] == 0 for row in metrics(run))
    assert any(row["equal_groups"] < 2 for row in metrics(run))
    assert questions(server) > 0


def test_turns_that_are_judged_are_paid_where_they_are(judged: Any) -> None:
    with serve(judge_of_colours()) as server:
        outcome, run = judged({"url": server.url, "mode": "process"}, {"name": "exact_match", "weight": 0.5})

    assert outcome.code == 0, outcome.err
    for row in trajectories(run):
        score = row["score"]
        expected = [turn % 11 / 10 / len(row["turns"]) for turn in range(len(row["turns"]))]
        assert score["turns"] == pytest.approx(expected)
        assert score["components"]["judge"] == pytest.approx(sum(expected))


def test_a_judge_that_is_not_there_ends_the_run_before_it_begins(judged: Any) -> None:
    with serve(judge_of_colours()) as server:
        url = server.url
    outcome, run = judged({"url": url})

    assert outcome.code == 2
    assert url in outcome.err
    assert not run.exists()


def test_a_run_does_not_start_below_the_agreement_that_it_demands(judged: Any, tmp_path: Path) -> None:
    answers = [("red", True), ("blue", True), ("gold", False), ("pink", False)] * 12
    likes = {"prompt": "Say a colour.", "truth": "red or blue"}
    labels = write_lines(tmp_path / "labels.jsonl", ({**likes, "answer": a, "label": right} for a, right in answers))
    hates = write_lines(tmp_path / "hates.jsonl", ({**likes, "answer": a, "label": not right} for a, right in answers))

    with serve(judge_of_colours()) as server:
        options = {"url": server.url, "min_kappa": 0.8}
        refused, run = judged({**options, "labels": str(hates)})
        assert refused.code == 2
        assert "kappa" in refused.err
        assert not (run / "metrics.jsonl").exists()

        outcome, run = judged({**options, "labels": str(labels)}, steps=1)

    assert outcome.code == 0, outcome.err
    assert "kappa 1.00" in outcome.out
    assert json.loads((run / "judge-calibration.json").read_text(encoding="utf-8"))["answers"]["kappa"]["value"] == 1.0


def test_a_pool_needs_an_engine_that_has_one(judged: Any) -> None:
    outcome, _ = judged({"placement": "pool", "model": "some/judge"})

    assert outcome.code == 2
    assert "--engine verl" in outcome.err


def test_one_word_on_the_command_line_adds_a_judge_to_a_tasks_own_rewards(
    cli: Cli, tiny_model: Path, search_files: Any, tmp_path: Path
) -> None:
    pytest.importorskip("rlfactory_search", reason="the plugin search is not installed")
    run = tmp_path / "run"
    own = ("--data", search_files.data, "--corpus", search_files.corpus, "--model", tiny_model)
    short = ("rollout.max_turns=3", "rollout.max_turn_tokens=40", "rollout.max_tokens=320")
    with serve(judge_of_colours()) as server:
        outcome = cli(
            "run",
            "--plugin",
            "search",
            "--judge",
            server.url,
            "--steps",
            2,
            *own,
            *SMALL,
            "train.workers=1",
            *short,
            "--out",
            run,
        )

    assert outcome.code == 0, outcome.err
    for row in trajectories(run):
        assert {"judge", "exact_match"} <= set(row["score"]["components"])
    assert metrics(run)[-1]["masked"] == 0
    assert questions(server) > 0


def test_a_judge_is_also_asked_in_an_evaluation(cli: Cli, tiny_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "eval"
    with serve(judge_of_colours()) as server:
        outcome = cli(
            "eval", "--plugin", TASK, "--model", tiny_model, "--judge", server.url, "eval.limit=4", "--out", out
        )

    assert outcome.code == 0, outcome.err
    assert "judge" in outcome.out
    assert questions(server) > 0
