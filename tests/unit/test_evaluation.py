"""Evaluation statistics against published numbers and brute force."""

from __future__ import annotations

from itertools import combinations

import pytest

from rlfactory_core.algo.evaluation import interval, pass_at_k, summarise
from rlfactory_core.types import Fault, FaultKind, Group, Sample, Score, StopReason, Trajectory

FAULT = Fault(FaultKind.VERIFIER, "judge", "late")


def group(name: str, *matches: float | None, part: str = "") -> Group:
    """One sample; None is a masked attempt."""
    sample = Sample(name, "?", "x", slice=part)
    attempts = [
        Trajectory(
            sample,
            index,
            (),
            StopReason.FINAL_ANSWER,
            faults=(FAULT,) if match is None else (),
            score=Score((match or 0.0) + 0.1, {"exact_match": match or 0.0, "format": 1.0}),
        )
        for index, match in enumerate(matches)
    ]
    return Group(sample, tuple(attempts))


def test_means_over_samples_and_slices() -> None:
    groups = [group("a", 1.0, part="one_hop"), group("b", 0.0, part="two_hop"), group("c", 1.0, part="two_hop")]
    flat = summarise(groups, prefix="eval.")
    assert flat["eval.exact_match"] == pytest.approx(2 / 3)
    assert (flat["eval.exact_match/one_hop"], flat["eval.exact_match/two_hop"]) == (1.0, 0.5)
    assert flat["eval.reward"] == pytest.approx(2 / 3 + 0.1)
    assert flat["eval.format/two_hop"] == 1.0
    assert (flat["eval.samples"], flat["eval.masked"]) == (3, 0)
    assert not any("pass@" in key for key in flat)


def test_masked_attempts_count_nowhere_but_in_their_number() -> None:
    flat = summarise([group("a", 1.0, None), group("b", None, None), group("c", 0.0, 1.0)])
    assert flat["exact_match"] == pytest.approx(0.75)
    assert flat["pass@2"] == 1.0  # only c has two attempts left
    assert (flat["samples"], flat["masked"], flat["masked/judge"]) == (3, 3, 3)


def test_pass_at_k_is_the_share_of_k_subsets_with_a_success() -> None:
    for attempts in range(1, 7):
        for successes in range(attempts + 1):
            outcomes = [index < successes for index in range(attempts)]
            for k in range(1, attempts + 1):
                subsets = list(combinations(outcomes, k))
                assert pass_at_k(attempts, successes, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_powers_of_two() -> None:
    groups = [group("a", 1.0, 0.0, 0.0, 0.0), group("b", 0.0, 0.0, 0.0, 0.0)]
    flat = summarise(groups)
    assert (flat["pass@2"], flat["pass@4"]) == (0.25, 0.5)
    assert "pass@3" not in flat


def test_intervals_of_proportions_are_wilsons() -> None:
    low, high = interval((1.0,) * 81 + (0.0,) * 182)  # Newcombe 1998, table I: 81 of 263
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    low, high = interval((0.0,) * 20)
    assert low == 0.0
    assert round(high, 4) == 0.1611


def test_intervals_of_means_are_a_seeded_bootstrap() -> None:
    values = [index / 200 for index in range(200)]
    assert interval(values) == interval(values) != interval(values, seed=1)
    half = 1.96 * (1 / 12) ** 0.5 / 200**0.5  # of a uniform distribution
    assert interval(values) == pytest.approx((0.4975 - half, 0.4975 + half), abs=0.01)


def test_intervals_stand_beside_their_metric() -> None:
    flat = summarise([group("a", 1.0, part="x"), group("b", 0.0, part="x")], intervals=True)
    assert flat["exact_match_low/x"] < flat["exact_match/x"] < flat["exact_match_high/x"]


def test_an_empty_evaluation_reports_nothing() -> None:
    assert summarise([]) == {"samples": 0, "masked": 0}
    assert summarise([group("a", None)]) == {"samples": 1, "masked": 1, "masked/judge": 1}
