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
    judge, _ = make(OutcomeJudge, lambda *_: failure, **{"on_budget": "stop", "on_outage": "stop", option: "mask"})
    task, reasons = a_task()

    async def run():
        await judge.open(task)
        with pytest.raises(type(failure)):
            await judge.score(RIGHT)

    asyncio.run(run())

    assert reasons == []


def test_a_spent_budget_decides_where_some_votes_failed_otherwise():
    failures = [UnavailableError("down"), BudgetError("spent"), UnavailableError("down")]
    judge, _ = make(OutcomeJudge, lambda _, vote: failures[vote], votes=3)

    with pytest.raises(BudgetError) as caught:
        asyncio.run(judge.score(RIGHT))

    assert caught.value.counts == {"unavailable": 2, "over_budget": 1}


def test_a_group_without_a_judge_is_masked_with_its_cost():
    judge, _ = make(RankingJudge, lambda *_: UnavailableError("down"))

    with pytest.raises(UnavailableError) as caught:
        asyncio.run(judge.score_group(group(RIGHT, WRONG, broken(RIGHT), attempt())))

    assert caught.value.counts == {"unavailable": 1}
