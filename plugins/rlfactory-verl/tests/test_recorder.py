"""Inside verl's trainer the recorder writes the same folder as in the local engine."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from configs import made_config
from reporting_examples import decode, infra_fault, make_trajectory

from rlfactory_core.algo.evaluation import eval_passes, summarise
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.loggers import open_loggers
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.types import Group, Trajectory

pytest.importorskip("transfer_queue", reason="the verl engine needs it")
from rlfactory_verl.checkpoints import RecorderState
from rlfactory_verl.recorder import RowRecorder, verl_facts
from rlfactory_verl.replay import Row
from rlfactory_verl.rollout_request import Position

VERL = {
    "training/global_step": 1,
    "actor/pg_loss": 0.25,
    "actor/grad_norm": 1.5,
    "actor/perf/max_memory_allocated_gb": 71.5,
    "timing_s/gen": 2.0,
    "timing_s/step": 3.0,
    "training/rollout_probs_diff_mean": 1e-6,
    "a/text": "no number",
    "a/flag": True,
    "a/list": [1, 2],
}


class Shown(Progress):
    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[dict[str, float]] = []

    def advance(self, count: int = 1, **numbers: float) -> None:
        self.numbers.append(numbers)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create("search", tmp_path / "run")


def recorder(folder: RunFolder, earlier: RecorderState | None = None) -> RowRecorder:
    return RowRecorder(folder, open_loggers((), folder, {}), Shown(), "exact_match", earlier)


def test_every_summary_says_how_the_run_was_started(folder: RunFolder) -> None:
    """A run that is stopped has the summary that was written before its first step."""
    config = made_config({"plugin": "search", "engine": "verl", "verl": {"gpus": 2, "nodes": 3}}, "model=some/model")
    made = RowRecorder(folder, open_loggers((), folder, {}), Shown(), "exact_match", facts=verl_facts(config))
    found = made.summary(0)
    assert {name: found[name] for name in ("plugin", "engine", "model", "seed", "mode", "gpus", "steps")} == {
        "plugin": "search", "engine": "verl", "model": "some/model", "seed": 0, "mode": "sync", "gpus": 6, "steps": 0,
    }  # fmt: skip


def row(trajectory: Trajectory, prompt: str, position: Position) -> Row:
    return Row(f"{prompt}_{trajectory.attempt}_0", position, StoredTrajectory.of(trajectory, decode))


def step_rows() -> list[Row]:
    """Two prompts by two attempts, in the order in which they ended."""
    return [
        row(make_trajectory(1.0, sample="q2", attempt=1), "uid-a", Position("train", 1, 1)),
        row(make_trajectory(0.0, sample="q1", attempt=1), "uid-b", Position("train", 1, 0)),
        row(make_trajectory(0.0, sample="q2", attempt=0, faults=(infra_fault(),)), "uid-a", Position("train", 1, 1)),
        row(make_trajectory(1.0, sample="q1", attempt=0), "uid-b", Position("train", 1, 0)),
    ]


def test_a_step_is_one_line_of_metrics_with_verls_numbers_beside(folder: RunFolder) -> None:
    made = recorder(folder)
    made.step_rows(step_rows()[:3])
    made.step_rows(step_rows()[3:])
    returned = made.end_step(1, VERL)
    (line,) = folder.read_metrics()
    assert line["step"] == 1
    assert line["reward"] == pytest.approx(2 / 3)
    assert line["exact_match"] == pytest.approx(2 / 3)
    assert (line["masked"], line["faults/infra"]) == (1.0, 1.0)
    assert line["tool/search/calls"] == 4.0
    assert (line["loss"], line["grad_norm"], line["rollout_s"], line["step_s"]) == (0.25, 1.5, 2.0, 3.0)
    assert (line["verl/actor/pg_loss"], line["verl/timing_s/gen"]) == (0.25, 2.0)
    assert line["machine/gpu_memory_gib"] == 71.5
    assert not {"verl/a/text", "verl/a/flag", "verl/a/list"} & set(line)
    live = [r.stored.trajectory for r in step_rows() if not r.stored.trajectory.masked]
    assert line["trained_tokens"] == sum(t.num_sampled for t in live)
    assert line["sampled_tokens_s"] == line["trained_tokens"] / 2.0
    assert {name: value for name, value in returned.items() if not math.isnan(value)}.items() <= line.items()


def test_a_steps_trajectories_are_ordered_by_prompt_and_attempt(folder: RunFolder) -> None:
    made = recorder(folder)
    made.step_rows(step_rows())
    made.end_step(1, VERL)
    found = [stored.trajectory for stored in folder.read_trajectories(1)]
    assert [(t.sample.id, t.attempt) for t in found] == [("q1", 0), ("q1", 1), ("q2", 0), ("q2", 1)]
    assert [t.masked for t in found] == [False, False, True, False]
    made.end_step(2, VERL)
    assert list(folder.read_trajectories(2)) == []


def test_prompts_are_ordered_by_number_not_by_text(folder: RunFolder) -> None:
    made = recorder(folder)
    made.step_rows(
        [row(make_trajectory(sample=f"q{n}"), f"uid-{99 - n}", Position("train", 1, n)) for n in (10, 2, 9, 0)]
    )
    made.end_step(1, VERL)
    assert [s.trajectory.sample.id for s in folder.read_trajectories(1)] == ["q0", "q2", "q9", "q10"]


def test_the_display_shows_reward_success_and_speed(folder: RunFolder) -> None:
    made = recorder(folder)
    made.step_rows(step_rows())
    made.end_step(1, VERL)
    assert isinstance(made.progress, Shown)
    (numbers,) = made.progress.numbers
    assert numbers == {
        "reward": pytest.approx(2 / 3),
        "exact_match": pytest.approx(2 / 3),
        "sampled_tokens_s": folder.read_metrics()[0]["sampled_tokens_s"],
        "masked": 1.0,
    }


@pytest.mark.parametrize("logged", [True, False], ids=["logged", "killed between checkpoint and log"])
def test_a_resumed_run_has_the_checkpoint_s_step_even_if_it_was_not_logged(folder: RunFolder, logged: bool) -> None:
    first = recorder(folder)
    first.step_rows(step_rows())
    saved = RecorderState(**json.loads(json.dumps(asdict(first.state(1)))))
    if logged:
        first.end_step(1, VERL)
    second = recorder(folder, saved)
    second.step_rows(step_rows())
    second.end_step(2, VERL)
    assert [found["step"] for found in folder.read_metrics()] == [1, 2]
    assert folder.read_metrics()[0]["reward"] == pytest.approx(2 / 3)
    assert len(list(folder.read_trajectories(1))) == len(step_rows())
    sampled = sum(r.stored.trajectory.num_sampled for r in step_rows())
    summary = second.summary(2)
    assert summary["steps"] == 2
    assert summary["sampled_tokens"] == 2 * sampled
    assert summary["trained_tokens"] == 2 * folder.read_metrics()[0]["trained_tokens"]
    assert summary["faults"]["infra"] == 2
    assert summary["seconds"] >= saved.totals["seconds"]
    assert summary["eval"] == {"before": {}, "after": {}}


def evaluation(passes: Any) -> tuple[list[Row], dict[str, list[Group]]]:
    """Rows of all passes in a mixed-up order, and the groups that they make."""
    found: list[Row] = []
    groups: dict[str, list[Group]] = {}
    for how in passes:
        groups[how.name] = []
        for index in range(12):
            attempts = tuple(
                make_trajectory(
                    float((index + attempt + len(how.name)) % 3 == 0),
                    sample=f"q{index}",
                    hops="two_hop" if index % 2 else "one_hop",
                    attempt=attempt,
                    faults=(infra_fault(),) if index == 5 else (),
                )
                for attempt in range(how.attempts)
            )
            groups[how.name].append(Group(attempts[0].sample, attempts))
            found += [row(t, f"uid-{how.name}-{index * 7 % 12}", Position(how.name, 0, index)) for t in attempts]
    return found[::-1], groups


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_evaluation_is_summarised_as_by_every_engine(folder: RunFolder, when: str) -> None:
    made = recorder(folder)
    passes = eval_passes(when, attempts=2, controls=["no_results"])
    rows, groups = evaluation(passes)
    made.evaluation_rows(rows[:7])
    made.evaluation_rows(rows[7:])
    made.end_evaluation(when, passes)
    expected: dict[str, float] = {}
    for how in passes:
        expected |= summarise(groups[how.name], success="exact_match", prefix=how.prefix)
    assert made.summary(3)["eval"][when] == expected
    assert expected["masked"] == 1
    assert expected["sampled/masked"] == 2
    assert "sampled/pass@2" in expected
    assert "control/no_results/exact_match/two_hop" in expected
    for how in passes:
        stored = [s.trajectory for s in folder.read_trajectories(how.name)]
        assert [t.sample.id for t in stored] == [f"q{i}" for i in range(12) for _ in range(how.attempts)]


def test_a_measurement_has_confidence_intervals(folder: RunFolder) -> None:
    made = recorder(folder)
    passes = eval_passes("after", attempts=0, controls=[])
    rows, groups = evaluation(passes)
    made.evaluation_rows(rows)
    made.end_evaluation("after", passes, intervals=True)
    assert made.results["after"] == summarise(groups["eval-after"], intervals=True)
    assert "exact_match_low" in made.results["after"]


def test_an_evaluation_between_steps_is_in_the_next_steps_metrics_only(folder: RunFolder) -> None:
    made = recorder(folder)
    (how,) = eval_passes("before", attempts=0, controls=[])
    rows, groups = evaluation([how])
    for step in (1, 2):
        made.step_rows(step_rows())
        if step == 1:
            made.evaluation_rows(rows)
            made.end_evaluation("", [how])
        made.end_step(step, VERL)
    first, second = folder.read_metrics()
    assert first["eval/exact_match"] == pytest.approx(summarise(groups[how.name])["exact_match"])
    assert "eval/exact_match/two_hop" in first
    assert not [name for name in second if name.startswith("eval/")]
    assert made.results == {}
    assert isinstance(made.progress, Shown)
    assert "eval/exact_match" in made.progress.numbers[0]
