"""The record of a run warns if the truth falls while the reward rises."""

from __future__ import annotations

from pathlib import Path

import pytest
from said import Said

from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.training.record import Recorder

WEIGHTS = {"judge": 1.0, "format": 0.1, "exact_match": 0.0}


@pytest.mark.parametrize(
    ("judge", "truth", "warns"),
    [(0.9, 0.30, True), (0.9, 0.38, False), (0.5, 0.30, False), (0.9, 0.9, False), (0.3, 0.30, False)],
)
def test_a_reward_that_rises_while_the_truth_falls_is_told(
    tmp_path: Path, judge: float, truth: float, warns: bool
) -> None:
    heard = Said()
    recorder = Recorder(RunFolder.create("demo", tmp_path / "run"), heard, "judge", weights=WEIGHTS)
    recorder.results["before"] = {"judge": 0.5, "format": 1.0, "exact_match": 0.4}
    metrics = {"trained_tokens": 1.0, "eval/judge": judge, "eval/format": 1.0, "eval/exact_match": truth}
    recorder.step(10, [], metrics, [])
    said = [line for line in heard.lines if "to please judge" in line]
    assert bool(said) == warns
    if warns:
        assert (
            "judge has risen (0.50 to 0.90) while exact_match, which is only measured, has fallen (0.40 to 0.30)"
            in said[0]
        )


def ended(tmp_path: Path, steps: int, metrics: dict[str, float], after: dict[str, float]) -> list[str]:
    recorder = Recorder(RunFolder.create("demo", tmp_path / "run"), Said(), "exact_match", weights={"exact_match": 1.0})
    for step in range(1, steps + 1):
        recorder.step(step, [], {"trained_tokens": 9.0, "groups": 8.0, "equal_groups": 1.0, **metrics}, [])
    recorder.results["after"] = after
    return list(recorder.summary(steps)["warnings"])


@pytest.mark.parametrize(
    ("metrics", "after", "said"),
    [
        ({"reward": 0.9, "exact_match": 0.9}, {"exact_match": 0.85, "samples": 100}, ""),
        ({"reward": 0.0, "exact_match": 0.0}, {}, "reward and exact_match stayed at 0"),
        (
            {"reward": 0.3, "exact_match": 0.3, "equal_groups": 8.0},
            {},
            "the attempts of each group got the same reward",
        ),
        (
            {"reward": 0.9, "exact_match": 0.9},
            {"exact_match": 0.9, "sampled/exact_match": 0.5, "sampled/samples": 100},
            "exact_match is 0.90 in training (last 10 steps) and 0.50 on 100 held-out samples",
        ),
        ({"reward": 0.9, "exact_match": 0.9}, {"exact_match": 0.7, "samples": 8}, ""),  # so few can be unlucky
    ],
)
def test_what_a_run_has_not_learnt_is_a_warning_at_its_end(
    tmp_path: Path, metrics: dict[str, float], after: dict[str, float], said: str
) -> None:
    found = ended(tmp_path, 3, metrics, after)
    assert bool(found) == bool(said)
    assert said in "".join(found)


def test_warnings_outlast_a_stop_and_a_resume(tmp_path: Path) -> None:
    ended(tmp_path, 12, {"reward": 0.3, "exact_match": 0.3, "equal_groups": 8.0}, {})
    assert "In the last 10 steps" in RunFolder(tmp_path / "run").read_summary()["warnings"][0]
