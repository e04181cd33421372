"""A training that goes wrong is told of, from its metrics alone."""

from __future__ import annotations

import random

import pytest
from guard_curves import BAD, HEALTHY, JUDGED, Rows, bad, hacked, judged, traded
from guard_curves import WEIGHTS as WEIGHTS_OF_CURVES
from said import Said

from rlfactory_core.algo.guard import Guard
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.training.record import Recorder

GOOD = {
    "reward": 0.5, "entropy": 0.8, "sampled_tokens": 60.0, "tool_calls": 1.5, "stop/length": 0.02, "masked": 0.0,
    "trained_tokens": 900.0, "mismatch_kl": 0.001, "judge": 0.5, "exact_match": 0.5,
}  # fmt: skip
WEIGHTS = {"judge": 1.0, "exact_match": 0.0}


def names(last: dict[str, float], steps: int = 5, before: int = 5) -> list[str]:
    return at_last([GOOD] * before + [{**GOOD, **last}] * steps, WEIGHTS)


def at_last(rows: list[dict[str, float]], weights: dict[str, float]) -> list[str]:
    """What a run shows after its last step."""
    guard = Guard(weights)
    return [finding.name for finding in [guard.add(row)[0] for row in rows][-1]]


@pytest.mark.parametrize(
    ("last", "found"),
    [
        ({}, []),
        ({"entropy": 0.0}, ["entropy"]),
        ({"entropy": 0.05}, []),
        ({"entropy": 0.0, "trained_tokens": 0.0}, []),  # all groups were equal: none was measured
        ({"sampled_tokens": 10.0}, ["length"]),
        ({"sampled_tokens": 30.0}, []),
        ({"stop/length": 0.8}, ["cut_off"]),
        ({"tool_calls": 0.1}, ["tools"]),
        ({"mismatch_kl": 0.5}, ["mismatch"]),
        ({"mismatch_kl": 0.5, "staleness": 1.0}, []),
        ({"rollout_probs_diff_mean": 0.2}, ["mismatch"]),
        ({"masked": 64.0, "trained_tokens": 0.0}, ["masked"]),
        ({"masked": 5.0}, []),
        ({"judge": 0.7, "exact_match": 0.4}, ["reward"]),
        ({"judge": 0.7, "exact_match": 0.6}, []),
        ({"judge": 0.4, "exact_match": 0.3}, []),
        ({"entropy": float("nan"), "sampled_tokens": float("nan")}, []),
    ],
)
def test_what_the_last_steps_show(last: dict[str, float], found: list[str]) -> None:
    assert names(last) == found


def test_one_bad_step_is_no_finding_and_a_young_run_has_none() -> None:
    assert names({"entropy": 0.0}, steps=4) == []
    assert names({"entropy": 0.0}, steps=4, before=0) == []


@pytest.mark.parametrize("calls", [[1.5] * 6 + [0.2] * 8 + [1.5] * 6, [12.0] * 8 + [1.2] * 20, [0.0] * 8 + [1.5] * 20])
def test_a_run_that_recovers_has_not_stopped_to_use_its_tools(calls: list[float]) -> None:
    assert shown([{**GOOD, "tool_calls": each} for each in calls], WEIGHTS) == {}
    assert "tools" in shown([{**GOOD, "tool_calls": each} for each in [1.5] * 6 + [0.2] * 12], WEIGHTS)


def test_a_task_without_tools_does_not_lose_them() -> None:
    rows = [{**GOOD, "tool_calls": 0.0}] * 10
    assert at_last(rows, {}) == []


def test_a_finding_is_said_once_and_marked_in_every_step(tmp_path) -> None:  # type: ignore[no-untyped-def]
    heard = Said()
    folder = RunFolder.create("demo", tmp_path / "run")

    class Logger:
        def log(self, step: int, metrics: dict[str, float]) -> None:
            folder.append_metrics(step, metrics)

    recorder = Recorder(folder, heard, "judge", Logger(), weights=WEIGHTS)  # type: ignore[arg-type]
    for step in range(1, 13):
        recorder.step(step, [], GOOD if step < 6 else {**GOOD, "entropy": 0.0}, [])
    assert len([line for line in heard.lines if "Entropy is below" in line]) == 1
    assert [row["step"] for row in folder.read_metrics() if row.get("guard/entropy")] == [10, 11, 12]
    assert recorder.summary(12)["warnings"] == [recorder.warned[0]]
    assert "step 10" in recorder.warned[0]

    resumed = Recorder(folder, Said(), "judge", Logger(), {}, WEIGHTS)  # type: ignore[arg-type]
    resumed.step(13, [], {**GOOD, "entropy": 0.0}, [])
    assert resumed.warned == []


def shown(rows: Rows, weights: dict[str, float]) -> dict[str, int]:
    """What is found in a run, and how many steps it takes."""
    guard, found = Guard(weights), {}
    for step, row in enumerate(rows):
        for finding in guard.add(row)[1]:
            found.setdefault(finding.name, step + 1)
    return found


@pytest.mark.parametrize("kind", BAD)
def test_every_kind_of_bad_curve_is_found(kind: str) -> None:
    for seed in range(3):
        assert BAD[kind][0] in shown(bad(kind, random.Random(f"{kind} {seed}")), WEIGHTS_OF_CURVES), seed


@pytest.mark.parametrize("kind", ["reward to nothing", "nothing trained", "30 calls", "wrong calls x 100", "cut off"])
def test_what_goes_wrong_within_the_first_five_steps_is_found(kind: str) -> None:
    for seed in range(3):
        found = shown(bad(kind, random.Random(f"{kind} {seed}"), early=True), WEIGHTS_OF_CURVES)
        assert found.get(BAD[kind][0], 99) <= 12, seed


def test_scores_that_part_are_found() -> None:
    for seed in range(3):
        assert "reward" in shown(traded(random.Random(seed)), {"exact_match": 1.0, "format": 1.0})
        assert "reward" in shown(hacked(random.Random(seed)), {"hasty": 1.0, "exact_match": 0.0})
        assert "gap" in shown(judged(random.Random(seed), lambda _step: 0.28), JUDGED)
        assert "gap" in shown(judged(random.Random(seed), lambda step: 0.3 * min(1.0, step / 40)), JUDGED)


@pytest.mark.parametrize("seed", range(6))
def test_a_healthy_run_gets_no_warning(seed: int) -> None:
    for number, make in enumerate(HEALTHY):
        weights = JUDGED if number == len(HEALTHY) - 1 else WEIGHTS_OF_CURVES
        assert shown(make(random.Random(f"{number} {seed}")), weights) == {}, number


def test_a_run_that_earned_or_trained_nothing_says_so_at_its_end() -> None:
    def whole(**metrics: float) -> list[str]:
        guard = Guard(WEIGHTS, success="exact_match")
        for _ in range(3):
            guard.add({**GOOD, "groups": 8.0, "equal_groups": 2.0, **metrics})
        return guard.whole()

    assert whole() == []
    assert "reward and exact_match stayed at 0" in whole(reward=0.0, exact_match=0.0)[0]
    assert "steps exact_match stayed at 0" in whole(exact_match=0.0)[0]
    assert "nothing was trained" in whole(equal_groups=8.0)[0]
    assert whole(equal_groups=8.0, critic_loss=0.1) == []
