"""What happens when the tokens are spent, or when nobody answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rlfactory_judge.contract import BudgetError, UnavailableError
from rlfactory_judge.scoring.group_judge import RankingJudge
from rlfactory_judge.scoring.judge import OutcomeJudge
from scripted_judge import answered, attempt, broken, group, make

from rlfactory_core.context import RunContext
from rlfactory_core.errors import VerifierError
from rlfactory_core.tasks.task import Task

RIGHT, WRONG = attempt(answered("red")), attempt(answered("blue"))
FAILURES = [("on_budget", BudgetError("The tokens are spent.")), ("on_outage", UnavailableError("Nobody answers."))]


def a_task(folder: Path | None = None) -> tuple[Task, list[str]]:
    """A task of a run that notes down why it was asked to stop."""
    reasons: list[str] = []
    task = Task()
    task.run = RunContext(folder, reasons.append)
    return task, reasons


@pytest.mark.parametrize(("option", "failure"), FAILURES)
def test_rules_score_instead_and_say_so(option, failure):
    judge, _ = make(OutcomeJudge, lambda *_: failure, **{option: "rules"})

    right, wrong = (asyncio.run(judge.score(each)) for each in (RIGHT, WRONG))

    assert (right.value, wrong.value) == (1.0, 0.0)
    assert right.counts["fallback"] == 1
    assert right.verdicts["judge"].passed
    assert "exact_match" in right.verdicts["judge"].reasons[0]
    assert str(failure) in right.verdicts["judge"].reasons[0]


def test_the_rule_can_be_another():
    judge, _ = make(OutcomeJudge, lambda *_: UnavailableError("down"), on_outage="rules", fallback="format")

    assert asyncio.run(judge.score(WRONG)).value == 1.0


def test_a_rule_that_has_no_truth_to_compare_with_masks():
    judge, _ = make(OutcomeJudge, lambda *_: UnavailableError("down", counts={"requests": 5.0}), on_outage="rules")

    with pytest.raises(VerifierError, match="no answer to compare with") as caught:
        asyncio.run(judge.score(attempt("red", truth=None)))

    assert caught.value.counts["requests"] == 5


@pytest.mark.parametrize(("option", "failure"), FAILURES)
@pytest.mark.parametrize("kind", [OutcomeJudge, RankingJudge])
def test_a_stop_is_asked_for_once_and_the_attempts_are_masked(option, failure, kind):
    judge, _ = make(kind, lambda *_: failure, **{option: "stop"})
    task, reasons = a_task()

    async def run():
        await judge.open(task)
        for _ in range(3):
            with pytest.raises(type(failure)):
                await (judge.score(RIGHT) if kind is OutcomeJudge else judge.score_group(group(RIGHT, WRONG)))

    asyncio.run(run())

    assert len(reasons) == 1
    assert "To go on" in reasons[0]

    task, reasons = a_task()
    asyncio.run(run())
    assert len(reasons) == 1  # also of the next run


@pytest.mark.parametrize(("option", "failure"), FAILURES)
def test_each_kind_of_failure_has_its_own_way(option, failure):
    judge, _ = make(OutcomeJudge, lambda *_: failure, **{"on_budget": "rules", "on_outage": "rules", option: "mask"})

    with pytest.raises(type(failure)):
        asyncio.run(judge.score(RIGHT))


def test_a_spent_budget_decides_where_some_votes_failed_otherwise():
    failures = [UnavailableError("down"), BudgetError("spent"), UnavailableError("down")]
    judge, _ = make(OutcomeJudge, lambda _, vote: failures[vote], votes=3, on_budget="rules")

    found = asyncio.run(judge.score(RIGHT))

    assert found.value == 1.0
    assert found.counts == {"unavailable": 2, "over_budget": 1, "fallback": 1}


def test_a_group_is_scored_by_the_rule_and_its_cost_is_counted_once():
    judge, _ = make(RankingJudge, lambda *_: UnavailableError("down"), on_outage="rules")

    scores = asyncio.run(judge.score_group(group(RIGHT, WRONG, broken(RIGHT), attempt())))

    assert [score.value for score in scores] == [1.0, 0.0, 0.0, 0.0]
    assert sum(score.counts.get("unavailable", 0) for score in scores) == 1
    assert sum(score.counts.get("fallback", 0) for score in scores) == 2
