"""Pairs of queries whose verdicts other evaluators state, each compared in that evaluator's sense."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rlfactory_nl2sql.comparison.compare import Answer, Comparison, answer_of, compare
from rlfactory_nl2sql.connection import Connection, QueryLimits
from rlfactory_nl2sql.databases.reference import connect, parse_reference
from rlfactory_nl2sql.verification.gold import VerifyOptions
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.verifier import SqlVerifier

from rlfactory_core.types import Verdict

Case = Mapping[str, Any]

CASES = Path(__file__).parents[4] / "shared" / "cases"
ROWS: dict[str, Case] = (
    {row["id"]: row for row in map(json.loads, (CASES / "nl2sql.jsonl").read_text(encoding="utf-8").splitlines())}
    if (CASES / "nl2sql.jsonl").is_file()
    else {}
)
COMPARED = [name for name, row in ROWS.items() if row["data"] is not None]

# Which evaluator's verdicts are found with which comparison.
SENSES = {
    "bird_ex": Comparison("set"),
    "testsuite": Comparison("test-suite"),
    "testsuite_keep_distinct": Comparison("test-suite"),
    "defog_exact": Comparison("test-suite"),
}

# Verdicts that are not reproduced, and why.
EXCEPTIONS = {("gymbird_3", "defog_exact"): "sql-eval drops repeated rows, which no comparison but set does here"}

pytestmark = pytest.mark.skipif(not ROWS, reason=f"the cases are not there: {CASES / 'nl2sql.jsonl'}")


def database(case: Case, folder: Path) -> Path:
    path = folder / "case.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(case["schema"])
        for table, rows in case["data"].items():
            for row in rows:
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        connection.commit()
    return path


def gold_answer(case: Case, evaluator: str, connection: Connection) -> Answer:
    """As the evaluator sees it: sql-eval takes order to count where the question or its category says so.

    The queries of these cases have lost the ORDER BY of their source, which sorts by the column B.
    """
    orders = case["category"] == "order_by" or re.search(r"\b(order|sort|arrange)\b", case["question"].lower())
    if not (evaluator.startswith("defog") and orders):
        return answer_of(connection.query(case["gold"], QueryLimits()), ordered=False)
    orders = (' ORDER BY "B", 1', ' ORDER BY "B", 1 DESC')
    readings = [connection.query(case["gold"] + order, QueryLimits()) for order in orders]
    return answer_of(readings[0], readings, ordered=True)


@pytest.mark.parametrize("name", COMPARED)
def test_what_the_source_states_and_other_evaluators_say(name: str, tmp_path: Path) -> None:
    case = ROWS[name]
    expected = {**case["verdicts"], case["stated_by"]: case["stated_equal"]}
    evaluators = [evaluator for evaluator in SENSES if (name, evaluator) not in EXCEPTIONS]
    connection = connect(parse_reference(database(case, tmp_path)), QueryLimits())
    try:
        rows = connection.query(case["pred"], QueryLimits())
        found = {
            evaluator: compare(gold_answer(case, evaluator, connection), rows, SENSES[evaluator]) is None
            for evaluator in evaluators
        }
    finally:
        connection.close()
    assert found == {evaluator: expected[evaluator] for evaluator in evaluators}


def test_all_cases_are_compared() -> None:
    assert len(COMPARED) == len(ROWS) - 1 == 42


def verify(path: Path, case: Case, how: Comparison, seconds: float) -> Verdict:
    async def run() -> Verdict:
        pool = WorkerPool(workers=1)
        try:
            options = VerifyOptions(how, instances=1, limits=QueryLimits(seconds=seconds))
            return await SqlVerifier(pool, options).verify(parse_reference(path), case["gold"], case["pred"])
        finally:
            await pool.close()

    return asyncio.run(run())


def test_where_sql_eval_says_no_to_two_empty_results_the_verdict_is_unknown(tmp_path: Path) -> None:
    case = ROWS["defog_sub_01"]
    assert case["stated_equal"] is False
    assert verify(database(case, tmp_path), case, SENSES["defog_exact"], 5.0).passed is None


def test_a_prediction_without_end_is_wrong(tmp_path: Path) -> None:
    case = ROWS["chinook_pred_infinite"]
    assert case["stated_equal"] is False
    found = verify(CASES / case["base_db"], case, SENSES[case["stated_by"]], 0.5)
    assert found.passed is False
    assert found.data["failure"] == "deadline"
