"""What is not trained on because too much of it is masked, and why."""

from __future__ import annotations

from dataclasses import replace

from reporting_examples import infra_fault, make_trajectory

from rlfactory_core.algo.masking import FAILED, Counts, LostAttempts, in_vain, is_trained
from rlfactory_core.types import PROMPT, Fault, FaultKind, Group, Sample, ToolResult, Trajectory


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
    losses = LostAttempts()
    return [losses.too_many(Counts.of(step)) for step in steps], losses.text(steps[-1])


def test_what_is_lost_for_what_another_play_does_not_change_is_not_played_again() -> None:
    none = Fault(FaultKind.VERIFIER, "mine", "it gave None; expected a number, or a Score", code="unusable")
    long = Fault(FaultKind.INFRA, PROMPT, "it leaves no room for an answer")
    assert in_vain([make_trajectory(faults=(none,))] * 3 + attempts(guess=1)) == (
        "3 of 4 attempts are lost, and will be again. The reward mine gives no score: it gave None; expected a number, "
        "or a Score"
    )
    assert "The prompts are too long: it leaves no room" in in_vain([make_trajectory(faults=(long,))])
    assert in_vain([make_trajectory(faults=(none,)), *attempts(guess=5)]) == in_vain(attempts(lost=3)) == ""


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
    assert LostAttempts().too_many(Counts.of(here) + Counts.of(there))


def failed(number: int, reason: str = "MCP server s: the database is locked", task: str = "") -> list[Trajectory]:
    """So many whose one call the tool itself fails; without a reason it refuses."""
    result = ToolResult("c0", "search", "Error: search failed.", FaultKind.TOOL, reason=reason)

    def fail(each: Trajectory) -> Trajectory:
        turn = replace(each.turns[0], results=(result,))
        return replace(each, turns=(turn, *each.turns[1:]), sample=replace(each.sample, task=task))

    return [fail(each) for each in attempts(call=number)]


def test_a_tool_that_has_answered_and_now_fails_for_all_is_down() -> None:
    well, down = attempts(guess=4, call=4), attempts(guess=8) + failed(FAILED)
    assert plays(well, down) == (
        [False, True],
        "search failed for each of the last 8 that called it (MCP server s: the database is locked)",
    )
    few = attempts(guess=8) + failed(3)
    assert plays(well, few, few, few)[0] == [False, False, False, True]
    seldom = attempts(call=4) + failed(12)  # it answers every fourth
    assert plays(seldom, failed(30), failed(20))[0] == [False, False, True]
    assert plays(well, down, attempts(call=1, guess=8))[0] == [False, True, False]  # it is back


def test_a_tool_that_fails_for_some_or_refuses_or_never_answered_is_not_down() -> None:
    well = attempts(call=4)
    assert plays(well, failed(20) + attempts(call=1))[0] == [False, False]
    assert plays(well, failed(20, reason=""))[0] == [False, False]
    assert plays(*[failed(20)] * 3)[0] == [False] * 3  # the policy may not call it well yet


def test_tools_of_two_tasks_with_one_name_are_told_apart() -> None:
    def of(task: str, played: list[Trajectory]) -> list[Trajectory]:
        return [replace(each, sample=replace(each.sample, task=task)) for each in played]

    dead = of("a", attempts(guess=60, lost=6)) + of("b", attempts(call=60))
    assert plays(dead) == (
        [True],
        (
            "6 of 126 trajectories were masked: search of a 6 (no answer within 30 s); "
            "of the last 6 that called search of a, 6 were lost"
        ),
    )
    both = of("a", attempts(call=4)) + of("b", attempts(call=4))
    assert plays(both, failed(FAILED, task="a") + of("b", attempts(call=60))) == (
        [False, True],
        "search of a failed for each of the last 8 that called it (MCP server s: the database is locked)",
    )
