"""Verdicts about a server's database, from worker processes that are guarded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rlfactory_nl2sql.connection import QueryLimits
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.verification.connections import Connections
from rlfactory_nl2sql.verification.gold import GoldJob, VerifyOptions
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.verifier import SqlVerifier
from sql_databases import make_mysql, make_postgres

GOLD = "SELECT name FROM singer ORDER BY id"


async def verdicts(ref: DatabaseRef) -> list[bool | None]:
    pool = WorkerPool(1)
    try:
        verifier = SqlVerifier(pool, VerifyOptions(instances=2))
        predictions = ("SELECT name AS n FROM singer ORDER BY id ASC", "SELECT name FROM singer ORDER BY name DESC")
        found = [await verifier.verify(ref, GOLD, prediction) for prediction in predictions]
    finally:
        await pool.close()
    assert [each.reasons for each in found if each.passed is None] == []
    return [each.passed for each in found]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_server_is_asked_by_guarded_workers(kind: str, request: pytest.FixtureRequest) -> None:
    server: Any = request.getfixturevalue(kind)
    ref = make_postgres(server) if kind == "postgres" else make_mysql(server)
    assert asyncio.run(verdicts(ref)) == [True, False]


SINGERS = "(SELECT 1 AS age, 'Ann' AS name UNION ALL SELECT 1, 'ann' UNION ALL SELECT 2, 'Bo') AS singers"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_rows_are_tied_whatever_letter_case_means_to_the_server(kind: str, request: pytest.FixtureRequest) -> None:
    server: Any = request.getfixturevalue(kind)
    ref = make_postgres(server) if kind == "postgres" else make_mysql(server)
    connections = Connections()
    found: list[object] = []
    try:
        for end in ("", " LIMIT 1", " LIMIT 2"):
            job = GoldJob(ref, f"SELECT * FROM {SINGERS} ORDER BY age{end}", VerifyOptions(instances=1))
            answer = connections.use(ref, QueryLimits(), job.gold).instances[0].answer
            assert answer is not None
            found.append("tied" if answer.tied else answer.ends)
    finally:
        connections.close()
    assert found == [(2, 3), "tied", (2,)]


@pytest.mark.slow
def test_rows_that_the_server_cannot_sort_say_nothing_against_a_prediction(postgres: Any) -> None:
    connections = Connections()
    gold = f"SELECT CAST('[1]' AS json) AS data, age FROM {SINGERS} ORDER BY age"
    try:
        ref = make_postgres(postgres)
        answer = (
            connections.use(ref, QueryLimits(), GoldJob(ref, gold, VerifyOptions(instances=1)).gold).instances[0].answer
        )
    finally:
        connections.close()
    assert answer is not None
    assert answer.tied
