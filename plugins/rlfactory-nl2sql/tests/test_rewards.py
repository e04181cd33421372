"""The rewards: what each says about an answer, in this plugin's task and in anybody's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from configs import made_config
from rlfactory_nl2sql.rewards.answers import predicted_sql
from rlfactory_nl2sql.rewards.execution import ExecutionMatch
from rlfactory_nl2sql.rewards.valid_sql import ValidSql
from rlfactory_nl2sql.task import Nl2SqlTask

from rlfactory_core import Message, Sample, StopReason, Task, ToolResult, Trajectory
from rlfactory_core.errors import UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.runner.making import make_tasks
from rlfactory_core.tasks.opening import open_tasks
from rlfactory_core.tasks.scorers import Scorers
from rlfactory_core.types import Turn

GOLD = "SELECT name FROM shop WHERE city_id = 1 ORDER BY name"


def turn(message: Message, *results: ToolResult) -> Turn:
    return Turn((1,), (2,), (-0.5,), message, results)


def said(text: str) -> Turn:
    return turn(Message("assistant", text))


def trajectory(*turns: Turn, gold: Any = GOLD, metadata: Mapping[str, Any] = {}) -> Trajectory:
    return Trajectory(Sample("s", "Which?", gold, metadata), 0, turns, StopReason.FINAL_ANSWER)


def answered(sql: str, gold: Any = GOLD, metadata: Mapping[str, Any] = {}) -> Trajectory:
    return trajectory(said(f"<answer>{sql}</answer>"), gold=gold, metadata=metadata)


def judge(task: Task, reward: Any, *items: Trajectory) -> list[Trajectory]:
    return judge_all(task, {"it": reward}, *items)


def judge_all(task: Task, rewards: Mapping[str, Any], *items: Trajectory) -> list[Trajectory]:
    """Scored through the core's layer, opened and closed as a run does it."""

    async def run() -> list[Trajectory]:
        weighted = {name: (reward, 1.0) for name, reward in rewards.items()}
        scorers = Scorers.of(weighted)
        await scorers.open(task, served=None)
        try:
            return [await scorers.layer.score_trajectory(item) for item in items]
        finally:
            await scorers.close()
            await task.close()

    return asyncio.run(run())


def value(item: Trajectory) -> float | None:
    """The score; None where it could not be found out."""
    assert item.score is not None
    return None if item.masked else item.score.value


def reasons(item: Trajectory) -> str:
    assert item.score is not None
    return "; ".join(item.score.verdicts["it"].reasons)


# --- the answer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("<answer> SELECT 1 </answer>", "SELECT 1"),
        ("<answer>```sql\nSELECT 1\n```</answer>", "SELECT 1"),
        ("<answer>\n```\nSELECT 1;\n```\n</answer>", "SELECT 1;"),
        ("<answer>```SELECT a < b```</answer>", "SELECT a < b"),
        ("<answer>```SQL SELECT 1```</answer>", "SELECT 1"),
        ("no <answer>SELECT 1</answer>, rather <answer>SELECT 2</answer>", "SELECT 2"),
        ("<answer></answer>", None),
        ("<answer>``````</answer>", None),
        ("SELECT 1", None),
        ("<answer>SELECT 1", None),
    ],
)
def test_the_sql_is_what_stands_in_the_last_answer(text: str, sql: str | None) -> None:
    assert predicted_sql(trajectory(said(text))) == sql


# --- execution ------------------------------------------------------------------------------------------------------


def test_execution_compares_results_on_the_task_s_database(shops: Path) -> None:
    right, swapped, constant, broken, silent = judge(
        Nl2SqlTask({"db": shops}),
        ExecutionMatch(),
        answered("SELECT s.name FROM shop s JOIN city c ON c.id = s.city_id WHERE c.id = 1 ORDER BY 1"),
        answered("SELECT name FROM shop WHERE city_id = 1 ORDER BY name DESC"),
        answered("SELECT 'Fjord' AS name UNION ALL SELECT 'Nord'"),
        answered("SELECT nam FROM shop"),
        trajectory(said("It is Fjord.")),
    )
    assert [value(item) for item in (right, swapped, constant, broken, silent)] == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert "nam" in reasons(broken)
    assert reasons(silent) == "no <answer>"
    assert all(reasons(item) for item in (swapped, constant))


def test_a_question_may_have_several_right_queries(shops: Path) -> None:
    golds = ("SELECT count(*) FROM shop", "SELECT max(id) FROM shop")
    by_name, none = judge(
        Nl2SqlTask({"db": shops}),
        ExecutionMatch(),
        answered("SELECT max(s.id) FROM shop s", golds),
        answered("SELECT 9", golds),
    )
    assert (value(by_name), value(none)) == (1.0, 0.0)


def test_a_url_in_a_row_of_anybody_s_task_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "hunter2")
    row = {"database": "postgresql://me:${SECRET_OF_MINE}@127.0.0.1:1/shop"}
    (item,) = judge(Task(), ExecutionMatch(), answered("SELECT 1", metadata=row))
    assert "only if you have allowed it" in item.faults[0].message


def test_where_the_right_query_fails_nothing_is_known_and_the_trajectory_is_masked(shops: Path) -> None:
    (item,) = judge(Nl2SqlTask({"db": shops}), ExecutionMatch(), answered("SELECT 1", "SELECT gone FROM shop"))
    assert item.masked
    assert "gold" in item.faults[0].message


def test_execution_works_in_anybody_s_task(shops: Path) -> None:
    named = {"database": str(shops)}
    right, wrong, nowhere = judge(
        Task(),
        ExecutionMatch(),
        answered("SELECT name FROM shop WHERE city_id = 1 ORDER BY 1", metadata=named),
        answered("SELECT name FROM city ORDER BY 1", metadata=named),
        answered(GOLD),
    )
    assert (value(right), value(wrong), value(nowhere)) == (1.0, 0.0, None)
    assert "database" in nowhere.faults[0].message
    (item,) = judge(Task(), ExecutionMatch(database=str(shops)), answered(GOLD))
    assert value(item) == 1.0


def test_a_lost_database_masks(shops: Path) -> None:
    task = Nl2SqlTask({"db": shops})
    shops.unlink()
    rewards = {"execution": ExecutionMatch(), "valid_sql": ValidSql()}
    (item,) = judge_all(task, rewards, answered("SELECT name FROM shop"))
    assert {fault.source for fault in item.faults} == set(rewards)


@pytest.mark.parametrize(
    "given",
    [
        "rewards=[{name: execution, weight: 1.0, semantics: set, instances: 2}, {name: format, weight: 0.1}]",
        {"rewards": [{"name": "execution", "semantics": "set", "instances": 2, "seconds": 2}]},
    ],
)
def test_options_come_from_yaml_and_from_the_command_line(shops: Path, given: Any) -> None:
    config = made_config({"plugin": "nl2sql", "task": {"db": str(shops)}}, given)
    tasks = make_tasks(config, Registry())
    assert tasks.success == "execution"

    async def run() -> Trajectory:
        async with open_tasks(tasks) as opened:
            twice = "SELECT name FROM shop WHERE city_id = 1 UNION ALL SELECT name FROM shop WHERE city_id = 1"
            return await opened.only.rewards.score_trajectory(
                answered(twice, "SELECT name FROM shop WHERE city_id = 1")
            )

    score = asyncio.run(run()).score
    assert score is not None
    assert score.components["execution"] == 1.0  # as sets they are equal
    assert score.verdicts["execution"].data["semantics"] == "set"
    assert score.verdicts["execution"].data["instances"] == 2 + 16


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("semantics: sets", "semantics"),
        ("tolerance: -1", "tolerance"),
        ("tolerance: .nan", "tolerance"),
        ("tolerance: 0.2", "tolerance"),
        ("max_rows: 0", "max_rows"),
        ("order: maybe", "order"),
        ("instances: 0", "instance"),
        ("semantic: set", "semantic"),
        ("database: nowhere.sqlite", "nowhere.sqlite"),
    ],
)
def test_a_wrong_option_is_refused_before_the_run(shops: Path, option: str, says: str) -> None:
    config = made_config({"plugin": "nl2sql", "task": {"db": str(shops)}}, f"rewards=[{{name: execution, {option}}}]")
    with pytest.raises(UsageError, match=says):
        make_tasks(config, Registry())


# --- by reading the SQL ---------------------------------------------------------------------------------------------


def test_valid_sql_is_one_reading_statement_of_known_names(shops: Path) -> None:
    good, unknown, syntax, writes, two, silent = judge(
        Nl2SqlTask({"db": shops}),
        ValidSql(),
        answered("SELECT 7 FROM shop"),
        answered("SELECT nam FROM shop"),
        answered("SELECT FROM WHERE"),
        answered("DELETE FROM shop"),
        answered("SELECT 1; SELECT 2"),
        trajectory(said("?")),
    )
    assert value(good) == 1.0
    assert [value(item) for item in (unknown, syntax, writes, two, silent)] == [0.0] * 5
    assert "name" in reasons(unknown)
    assert all(reasons(item) for item in (syntax, writes, two, silent))


def test_valid_sql_asks_the_database_and_computes_no_row(shops: Path) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n; -- to come"
    free, function = judge(
        Nl2SqlTask({"db": shops}), ValidSql(), answered(endless), answered("SELECT nosuch(name) FROM shop")
    )
    assert (value(free), value(function)) == (1.0, 0.0)
    assert "nosuch" in reasons(function)


def test_hostile_sql_scores_0_and_masks_nothing(shops: Path) -> None:
    hostile = ["SELECT " + "(" * 100_000, "SELECT '" + "x" * 10_000_000, "SELECT " + "1+" * 100_000 + "1", "\ud800\0"]
    rewards = {"execution": ExecutionMatch(instances=1), "valid": ValidSql()}
    for item in judge_all(Nl2SqlTask({"db": shops}), rewards, *map(answered, hostile)):
        assert not item.faults
        assert item.score is not None
        assert item.score.components == dict.fromkeys(rewards, 0.0)


def test_the_core_s_format_fits_answers_of_sql(shops: Path) -> None:
    config = made_config({"plugin": "nl2sql", "task": {"db": str(shops)}, "rewards": {"format": 1.0}})
    layer = make_tasks(config, Registry()).scorers.layer

    async def run(item: Trajectory) -> float:
        score = (await layer.score_trajectory(item)).score
        assert score is not None
        return score.value

    assert asyncio.run(run(answered("\n```sql\nSELECT a FROM t WHERE a < 3 AND b > 4\n```\n"))) == 1.0
    assert asyncio.run(run(trajectory(said("SELECT 1")))) == 0.0
