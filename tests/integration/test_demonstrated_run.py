"""A task that says how a sample is solved trains without a model being named."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import Cli, metrics, summary

pytestmark = pytest.mark.slow

STOCK = Path(__file__).parent.parent / "support" / "stock_task.py"


def test_a_run_of_a_task_that_shows_how_it_is_solved_learns_what_it_was_shown_carelessly(
    cli: Cli, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    outcome = cli(
        "run", "--plugin", STOCK, "--steps", "6", "eval.every=0", "eval.limit=40", "train.workers=2", "--out", run
    )
    assert outcome.code == 0, outcome.err
    before, after = (summary(run)["eval"][when]["sampled/exact_match"] for when in ("before", "after"))
    assert 0.02 < before < 0.6
    assert after > before + 0.2, summary(run)["eval"]
    assert metrics(run)[-1]["reward"] > metrics(run)[0]["reward"]
