"""A part of the run requests a stop: all processes stop after the same step, and the user gets the reason."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from runs import Cli, checkpoints, metrics, summary

pytestmark = pytest.mark.slow

PLUGIN = """
import multiprocessing

from rlfactory_core import Score, VerifierError, hookimpl
from tiny_task import Colours


class Spent:
    '''Asks for the stop in the second process alone, and cannot score the first attempts.'''

    def __init__(self, split="train", first=1):
        self.split, self.first = split, first

    async def open(self, task):
        self.run = task.run

    async def close(self): ...

    async def score(self, trajectory):
        chosen = trajectory.sample.split == self.split and trajectory.attempt < self.first
        if multiprocessing.parent_process() and chosen:
            for number in range(2):
                self.run.request_stop(f"Tokens are spent in {self.run.folder.name} ({number}).")
            raise VerifierError("no tokens are left", counts={"refused": 1.0})
        return Score(1.0)


@hookimpl
def rlfactory_tasks(register):
    register("spending", Colours)


@hookimpl
def rlfactory_reward_scorers(register):
    register("spent", Spent)
"""


@pytest.fixture
def command(tmp_path: Path) -> list[object]:
    plugin = tmp_path / "spending.py"
    plugin.write_text(PLUGIN)
    options = [
        "train.prompts_per_step=4",
        "train.group_size=4",
        "train.workers=2",
        "eval.limit=4",
        "eval.sampled=false",
    ]
    return ["run", "--plugin", plugin, "--steps", 5, "checkpoint.every=0", *options, "--out", tmp_path / "run"]


def test_a_stop_requested_in_a_step_takes_effect_after_the_step(
    cli: Cli, command: list[object], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    outcome = cli(*command, "rewards=[{name: exact_match}, {name: spent}]")
    assert outcome.code == 130, outcome.err
    reason = "Tokens are spent in run (0)."
    assert f"Stopped after step 1, which is saved. {reason} Go on with: rlfactory run --resume {run}" in outcome.err
    assert checkpoints(run) == ["latest", "step-1"]
    assert "steps" not in summary(run), "not 0: the metrics say how many"
    (row,) = metrics(run)
    assert row["masked"] == row["faults/verifier/spent"] == row["counts/spent.refused"] == 2
    assert (run / "report.html").exists()
    assert multiprocessing.active_children() == []
    resumed = cli("run", "--resume", run, "rewards=[{name: exact_match}]", "--steps", 2)
    assert resumed.code == 0, resumed.err
    assert summary(run)["steps"] == 2


def test_a_stop_requested_in_the_first_evaluation_takes_effect_before_the_first_step(
    cli: Cli, command: list[object], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    outcome = cli(*command, "rewards=[{name: exact_match}, {name: spent, split: eval}]")
    assert outcome.code == 130, outcome.err
    assert "Stopped before step 1. Tokens are spent in run (0). Start it anew: there is no checkpoint." in outcome.err
    assert metrics(run) == []
    assert summary(run)["eval"]["before"]["masked"] == 2
    assert multiprocessing.active_children() == []


def test_a_step_that_was_spoilt_when_the_stop_was_requested_is_not_trained(
    cli: Cli, command: list[object], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    outcome = cli(*command, "rewards=[{name: exact_match}, {name: spent, first: 4}]")  # half of all
    assert outcome.code == 130, outcome.err
    assert "Stopped before the update of step 1. Tokens are spent in run (0). Start it anew" in outcome.err
    assert metrics(run) == []
    assert multiprocessing.active_children() == []
