"""When a training ends before its last step."""

from __future__ import annotations

import pytest

from rlfactory_core.config import RunConfig
from rlfactory_core.errors import ConfigError
from rlfactory_core.settings import merge, parse_override, validate_section
from rlfactory_core.training.stopping import Ended, Until, check_goals


def test_all_goals_have_to_be_reached() -> None:
    until = Until({"exact_match": 0.9, "exact_match/two_hop": 0.8}, 0, "exact_match")
    assert until.check(5, {"exact_match": 0.95, "exact_match/two_hop": 0.7}) is None
    assert until.check(5, {"exact_match": 0.95}) is None  # the other was not measured
    ended = until.check(10, {"exact_match": 0.9, "exact_match/two_hop": 0.8})
    assert ended == Ended(
        "until",
        "reached exact_match 0.900 (train.until: 0.9), exact_match/two_hop 0.800 (train.until: 0.8) after step 10",
    )


def test_patience_counts_evaluations_without_a_new_best() -> None:
    until = Until({}, 2, "exact_match")
    values = [0.1, 0.3, 0.3, 0.4, 0.2, 0.4]
    ends = [until.check(step, {"exact_match": value}) for step, value in enumerate(values)]
    assert ends[:-1] == [None] * 5
    assert ends[-1] == Ended("patience", "no better held-out result in 2 evaluations (best: exact_match 0.400)")


def test_an_evaluation_that_measured_nothing_is_no_better_one() -> None:
    until = Until({}, 1, "exact_match")
    assert until.check(1, {"exact_match": 0.1}) is None
    assert until.check(2, {"exact_match": float("nan")}) is not None


@pytest.mark.parametrize("prefix", ["", "sampled/"])
def test_an_evaluation_that_lost_too_many_attempts_ends_nothing(prefix: str) -> None:
    until = Until({"exact_match": 0.5}, 1, "exact_match", attempts=1 if not prefix else 2)
    counts = {"samples": 40, "sampled/samples": 40, f"{prefix}masked": 27}
    reached, none = {"exact_match": 0.9, **counts}, {f"{prefix}masked": 40, "samples": 40}
    if not prefix:
        assert [until.check(step, found) for step, found in enumerate((reached, none, none))] == [None] * 3
    assert until.check(4, {**reached, f"{prefix}masked": 13}) is not None


def test_a_resumed_run_waits_for_as_long_as_the_whole_one() -> None:
    whole = Until({"f1": 1.0}, 2, "exact_match")
    whole.check(1, {"f1": 0.5})
    whole.check(2, {"f1": 0.4})
    resumed, longer = Until({"f1": 1.0}, 2, "exact_match"), Until({"f1": 1.0}, 3, "exact_match")
    assert resumed.load(whole.state())
    assert not longer.load(whole.state())  # the user has changed when it ends
    assert resumed.check(3, {"f1": 0.5}) == whole.check(3, {"f1": 0.5})


def test_the_pass_at_temperature_1_is_made_where_it_can_end_the_training() -> None:
    greedy, both = Until({"f1": 0.5}, 0, "f1", 2), Until({"f1": 0.5, "sampled/f1": 0.5}, 0, "f1", 2)
    assert [how.name for how in greedy.passes(3)] == ["eval-3"]
    assert [(how.name, how.attempts) for how in both.passes(3)] == [("eval-3", 1), ("eval-3-sampled", 2)]
    assert both.possible({"f1": 0.6})
    assert not both.possible({"f1": 0.4})


@pytest.mark.parametrize(
    ("goal", "hint"),
    [
        ("exact_mach", "Did you mean 'exact_match'"),
        ("exact_match/two_hops", "'exact_match/two_hop'"),
        ("sampled/exactmatch", "'sampled/exact_match'"),
        ("loss", "Known: called"),
    ],
)
def test_an_unknown_metric_is_refused_with_the_nearest(goal: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_goals({goal: 0.5}, ["exact_match", "format"], ["one_hop", "two_hop", ""])
    assert f"train.until.{goal}=0.5" in str(refused.value)
    assert hint in str(refused.value)


def test_known_metrics_pass() -> None:
    known = [
        "reward",
        "called",
        "exact_match",
        "judge.tone",
        "exact_match/two_hop",
        "sampled/exact_match",
        "sampled/pass@2",
    ]
    check_goals(dict.fromkeys(known, 0.5), ["exact_match", "judge"], ["two_hop"])


def test_goals_are_written_like_any_key() -> None:
    def goals(*overrides: str) -> dict[str, float]:
        given = merge({"plugin": "p", "train": {"until": {"f1": 0.9}}}, *map(parse_override, overrides))
        return validate_section(RunConfig, given).train.until

    assert goals("train.until.exact_match/two_hop=0.8") == {"f1": 0.9, "exact_match/two_hop": 0.8}
    assert goals("train.until.judge.tone=0.8", "train.until.f1=") == {"judge.tone": 0.8}
    assert goals("train.until=") == goals("train.until={}") == {}
    with pytest.raises(ConfigError, match=r"train\.until\.f1"):
        goals("train.until.f1=high")
