"""A policy that earns nothing from its start on is told what of it is zero, and what would help."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from guard_curves import HEALTHY, JUDGED
from guard_curves import WEIGHTS as WEIGHTS_OF_CURVES
from reporting_examples import make_group
from said import Said

from rlfactory_core.algo.evaluation import EvalPass
from rlfactory_core.algo.guard import Guard
from rlfactory_core.algo.guard_start import SILENT, Remedies, Signs
from rlfactory_core.algo.stages import STAGE_METHODS
from rlfactory_core.cli.run import _again
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.training.record import Recorder

RUN = "rlfactory run --plugin ./shop.py --model m"
SHOWN = Remedies(RUN, 8, demonstrated=True, turn_tokens=256, tokens=1024)
NOTHING = {
    **{"reward": 0.0, "exact_match": 0.0, "groups": 4.0, "equal_groups": 4.0, "masked": 0.0, "trained_tokens": 0.0},
    **{"called": 0.0, "unparsed": 0.0, "stop/length": 0.0},
}
WEIGHTS = {"exact_match": 1.0}


def said(steps: int = 5, remedies: Remedies = SHOWN, **metrics: float) -> list[str]:
    """What is newly found of the start in so many equal steps."""
    guard = Guard(WEIGHTS, remedies=remedies)
    new = [guard.add({**NOTHING, **metrics})[1] for _ in range(steps)]
    return [finding.text for found in new for finding in found if finding.name == "start"]


def test_it_names_what_is_zero_and_the_command_once() -> None:
    (text,) = said(30)
    assert "None of 160 attempts has earned anything (exact_match 0, pass@8 0, attempts with a valid call 0%, " in text
    assert "with an unreadable call 0%, cut off 0%)" in text
    assert text.endswith(
        f"The model does not call its tools. Let it learn from the task's own demonstrations first: "
        f"{RUN} --warm-start solve"
    )


@pytest.mark.parametrize(
    ("metrics", "remedies", "advice"),
    [
        ({}, Remedies(RUN, 8), f"--out teacher): {RUN} --warm-start FILE"),
        ({}, Remedies(RUN, 8, taught=True), "Give it more or other demonstrations, or a larger model"),
        ({}, Remedies("", 8, demonstrated=True), "demonstrations first (--warm-start solve)"),
        ({}, Remedies("", 8, served=True), "vLLM: --enable-auto-tool-choice --tool-call-parser NAME"),
        ({"stop/length": 0.9, "called": 0.4, "groups": 8.0}, SHOWN, "Give it more room: "),
        ({"stop/length": 0.9}, SHOWN, f"{RUN} rollout.max_turn_tokens=512 rollout.max_tokens=2048, or if it only"),
        ({"stop/length": 0.9}, SHOWN, f"{RUN} --warm-start solve"),
        ({"unparsed": 0.6}, SHOWN, "choose the right chat.format"),
        ({"tool/unknown/calls": 9.0, "tool/find/calls": 1.0}, SHOWN, "calls tools that do not exist"),
        ({"called": 0.4, "groups": 8.0}, SHOWN, "does not know how the task is solved. Let it learn"),
    ],
)
def test_the_advice_follows_from_the_cause(metrics: dict[str, float], remedies: Remedies, advice: str) -> None:
    (text,) = said(5, remedies, **metrics)
    assert advice in text


@pytest.mark.parametrize(
    "metrics",
    [
        {"groups": 1.0},  # 40 attempts are too few
        {"exact_match": 0.01},  # one has succeeded
        {"reward": 0.02, "called": 0.3},  # it earns a part, and calls
        {"called": 0.4},  # 160 attempts that call may not have met a success of one in a hundred
        {"masked": 24.0},  # most are lost
    ],
)
def test_nothing_is_said_where_the_run_may_learn(metrics: dict[str, float]) -> None:
    assert said(5, **metrics) == []


def test_a_run_that_succeeds_once_is_not_advised_again() -> None:
    guard = Guard(WEIGHTS, remedies=SHOWN)
    found = [guard.add({**NOTHING, "exact_match": float(step == 3) / 32, "reward": float(step == 3) / 32})[1]
             for step in range(20)]  # fmt: skip
    assert "start" not in {finding.name for new in found for finding in new}


@pytest.mark.parametrize("seed", range(4))
def test_a_healthy_run_is_never_advised(seed: int) -> None:
    for number, make in enumerate(HEALTHY):
        weights = JUDGED if number == len(HEALTHY) - 1 else WEIGHTS_OF_CURVES
        guard = Guard(weights, remedies=SHOWN)
        for row in make(random.Random(f"{number} {seed}")):
            assert not guard.add({**row, "called": 0.0})[1], number


@pytest.mark.parametrize(("method", "found"), [("grpo", {"start", "equal"}), ("rft", {"start"}), ("opd", set())])
def test_a_method_that_compares_nothing_learns_from_equal_groups(method: str, found: set[str]) -> None:
    guard = Guard(WEIGHTS, remedies=SHOWN, method=STAGE_METHODS[method])
    new = [guard.add({**NOTHING, "trained_tokens": 900.0, "grad_norm": 0.3})[1] for _ in range(20)]
    assert {finding.name for each in new for finding in each} == found


def test_groups_that_are_alike_although_some_succeed_need_more_attempts() -> None:
    guard = Guard(WEIGHTS, remedies=SHOWN)
    new = [guard.add({**NOTHING, "exact_match": 0.2, "reward": 0.2, "called": 0.5})[1] for _ in range(12)]
    (text,) = [finding.text for found in new for finding in found if finding.name == "equal"]
    assert f"Some attempts succeed: play more of each prompt: {RUN} train.group_size=16" in text
    assert "train.method=rft" in text


def test_the_evaluation_before_training_says_it_and_the_steps_do_not_repeat_it(tmp_path: Path) -> None:
    shown, folder = Said(), RunFolder.create("demo", tmp_path / "run")
    recorder = Recorder(folder, shown, "exact_match", weights=WEIGHTS, remedies=[SHOWN])
    silent = [make_group([0.0] * 4, sample=f"q{number}", calls=0) for number in range(SILENT // 4)]
    recorder.evaluated("before", EvalPass("eval-before", attempts=4), silent, [])
    recorder.advise("before training")
    assert recorder.summary()["warnings"] == folder.read_summary()["warnings"]  # the page of a run that goes on
    for step in range(1, 13):
        recorder.step(step, [], NOTHING, [])
    lines = [line for line in shown.lines if "None of" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"warning: before training: None of {SILENT} attempts has ")
    assert lines[0].endswith("--warm-start solve")
    assert folder.read_summary()["warnings"][0] == lines[0].removeprefix("warning: ")
    assert recorder.summary(12)["warnings"][0] == lines[0].removeprefix("warning: ")
    assert recorder.warned[0].startswith("step 10: In the last 10 steps")  # train.guard=stop does not stop for advice


def test_an_evaluation_in_which_some_call_is_not_beyond_doubt(tmp_path: Path) -> None:
    recorder = Recorder(RunFolder.create("demo", tmp_path / "run"), Said(), "exact_match", remedies=[SHOWN])
    recorder.evaluated("before", EvalPass("eval-before"), [make_group([0.0] * 400)], [])
    recorder.advise("before training")
    assert recorder.warnings() == []


def test_a_success_that_was_not_measured_is_not_zero() -> None:
    rows = [{name: value for name, value in NOTHING.items() if name != "exact_match"}] * 5
    assert Signs.of(rows, "exact_match", 8).cause == ""


def test_the_command_is_that_of_the_run_without_its_folder_and_without_a_password() -> None:
    given = ("--plugin", "./my shop.py", "--out", "runs/a", "--judge", "http://me:secret@host/v1", "--resume-or-start")
    assert _again(given) == "rlfactory run --plugin './my shop.py' --judge http://host/v1"
    assert _again(("--plugin", "search", "--out=a", "train.lr=1e-5")) == "rlfactory run --plugin search train.lr=1e-5"
    assert _again(("--plugin", "search", "--", "trainer.nnodes=1")) == ""  # words after it would be verl's


def test_shares_are_those_of_all_groups() -> None:
    rows = [{**NOTHING, "called": 0.5, "groups": 1.0}, {**NOTHING, "groups": 3.0, "masked": 2.0}]
    signs = Signs.of(rows, "exact_match", 4)
    assert (signs.attempts, signs.called) == (14, 0.125)
