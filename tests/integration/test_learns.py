"""The main claim in small: a run raises held-out exact match, and one that cannot learn does not pass for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import TINY_TASK, Cli, summary

pytestmark = pytest.mark.slow

RUN = ("run", "--plugin", TINY_TASK, "train.workers=1", "train.group_size=8", "train.updates_per_step=2")


def learned(run: Path) -> bool:
    """Whether the policy looks up what it used to guess: one in eight guesses is right."""
    before, after = (summary(run)["eval"][when] for when in ("before", "after"))
    greedy, sampled = (after[name] - before[name] for name in ("exact_match", "sampled/exact_match"))
    return bool(greedy >= 0.3 and sampled >= 0.3)


def test_a_run_learns_to_look_things_up(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = cli(*RUN, "--steps", "40", "--out", run)
    assert outcome.code == 0, outcome.err
    assert learned(run), summary(run)["eval"]
    after = summary(run)["eval"]["after"]
    assert after["exact_match"] >= 0.6
    # what it has learnt is to use the tool: without results it knows no more than before
    assert after["control/no_results/exact_match"] <= 0.3
    assert "Held-out exact match (greedy) rose from" in outcome.out


def test_a_run_whose_weights_stay_does_not_count_as_learning(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = cli(*RUN, "--steps", "5", "train.lr=1e-12", "train.muon_lr=0", "--out", run)
    assert outcome.code == 0, outcome.err
    assert not learned(run)
