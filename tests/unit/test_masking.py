"""What is not trained on because too much of it is masked, and why."""

from __future__ import annotations

from reporting_examples import infra_fault, make_trajectory

from rlfactory_core.algo.masking import Counts, Losses, is_trained
from rlfactory_core.types import Group, Sample, Trajectory


def attempts(*, guess: int = 0, call: int = 0, lost: int = 0) -> list[Trajectory]:
    """So many that guess, that call and get an answer, and that call and get none."""
    called = [make_trajectory(faults=(infra_fault(),) if number < lost else ()) for number in range(call + lost)]
    return [make_trajectory(calls=0)] * guess + called


def group(**kinds: int) -> Group:
    return Group(Sample("q1", "?"), tuple(attempts(**kinds)))


def test_a_group_whose_callers_are_lost_is_not_trained_on_however_few_they_are() -> None:
    assert is_trained(group(guess=8))
    assert is_trained(group(guess=3, call=4, lost=1))
    assert not is_trained(group(guess=7, lost=1))
    assert not is_trained(group(guess=6, call=1, lost=1))


def plays(*steps: list[Trajectory]) -> tuple[list[bool], str]:
    """Whether each is lost, and what is said of the last."""
    losses = Losses()
    return [losses.too_many(Counts.of(step)) for step in steps], losses.text(steps[-1])


def test_a_step_that_loses_the_callers_of_a_tool_is_lost_though_they_are_few() -> None:
    dead = attempts(guess=111, call=1, lost=16)
    assert plays(dead) == (
        [True],
        (
            "16 of 128 trajectories were masked: search 16 (no answer within 30 s); "
            "of the last 17 that called search, 16 were lost"
        ),
    )
    assert plays(attempts(guess=4, lost=6))[0] == [True]
    assert plays(attempts(guess=80, call=43, lost=5))[0] == [False]


def test_a_tool_that_is_called_once_a_step_is_found_to_be_down_over_several_steps() -> None:
    one, none = attempts(guess=127, lost=1), attempts(guess=128)
    assert plays(one, one, none) == ([False, False, False], "")
    assert plays(one, one, one, none) == (
        [False, False, True, True],  # played again without a caller, it would be a selection
        "of the last 3 that called search, 3 were lost",
    )
    assert plays(one, one, attempts(call=1), one, one)[0] == [False] * 5
    assert plays(one, one, one, attempts(call=1), one)[0] == [False, False, True, False, False]
    assert plays(one, *[none] * 9, one, one)[0] == [False] * 12  # too long ago


def test_the_attempts_of_all_processes_count_together() -> None:
    here, there = attempts(guess=20, lost=2), attempts(guess=20, lost=1)
    assert Losses().too_many(Counts.of(here) + Counts.of(there))
