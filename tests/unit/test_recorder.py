"""The record of a run warns if the truth falls while the reward rises."""

from __future__ import annotations

from pathlib import Path

import pytest
from said import Said

from rlfactory_core.engines.recorder import Recorder
from rlfactory_core.reporting.folder import RunFolder

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
