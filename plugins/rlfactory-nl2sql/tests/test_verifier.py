"""Verdicts as the reward gets them: from a database's file to passed, failed or unknown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rlfactory_nl2sql.comparison.compare import Comparison
from rlfactory_nl2sql.connection import QueryLimits
from rlfactory_nl2sql.databases.reference import parse_reference
from rlfactory_nl2sql.verification.gold import VerifyOptions
from rlfactory_nl2sql.verification.judging import PredictionJob
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.verifier import SqlVerifier
from rlfactory_nl2sql.verification.worker import Job

from rlfactory_core.errors import ConfigError
from rlfactory_core.types import Verdict

NORWEGIAN = "SELECT name FROM city WHERE country = 'Norway'"
NOWHERE = "SELECT name FROM city WHERE country = 'Norway' AND country = 'France'"
HANGING = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
BEST = "SELECT name FROM shop ORDER BY sales DESC LIMIT 2"

Verify = Callable[..., Any]


def with_verifier(work: Callable[[SqlVerifier], Any], options: VerifyOptions | None = None) -> Any:
    async def run() -> Any:
        pool = WorkerPool(workers=1)
        try:
            return await work(SqlVerifier(pool, options))
        finally:
            await pool.close()

    return asyncio.run(run())


def verdicts(path: Path, pairs: Sequence[tuple[str, str]], **options: Any) -> list[Verdict]:
    """One verdict for each gold query and prediction."""
    ref = parse_reference(path)

    async def all_of(verifier: SqlVerifier) -> list[Verdict]:
        return [await verifier.verify(ref, gold, prediction) for gold, prediction in pairs]

    found: list[Verdict] = with_verifier(all_of, VerifyOptions(**options))
    return found


class CountingPool(WorkerPool):
    """A pool that knows which jobs it has been given."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self.jobs: list[str] = []
        self.judging = asyncio.Event()

    async def run(self, job: Job, key: str = "") -> Any:
        self.jobs.append(type(job).__name__)
        if isinstance(job, PredictionJob):
            self.judging.set()
        return await super().run(job, key)


def test_attempts_of_the_same_text_are_judged_once(shops: Path) -> None:
    async def attempts() -> None:
        pool = CountingPool()
        verifier, ref = SqlVerifier(pool), parse_reference(shops)
        try:
            asked = [asyncio.ensure_future(verifier.verify(ref, NORWEGIAN, "SELECT name FROM city")) for _ in range(8)]
            await pool.judging.wait()
            asked.pop().cancel()  # the others still get their verdict
            assert [verdict.passed for verdict in await asyncio.gather(*asked)] == [False] * 7
            assert pool.jobs == ["GoldJob", "PredictionJob"]
            assert (await verifier.verify(ref, NORWEGIAN, "SELECT name FROM city")).passed is False
            assert pool.jobs == ["GoldJob", "PredictionJob"]
            assert (await verifier.verify(ref, NORWEGIAN, "SELECT name FROM city ")).passed is False
            assert pool.jobs == ["GoldJob", "PredictionJob", "PredictionJob"]
        finally:
            await pool.close()

    asyncio.run(attempts())


def test_a_prediction_that_was_late_is_judged_again(shops: Path) -> None:
    """Another program may have slowed it down."""

    async def twice() -> None:
        pool = CountingPool()
        verifier = SqlVerifier(pool, VerifyOptions(limits=QueryLimits(seconds=0.2)))
        try:
            for _ in range(2):
                verdict = await verifier.verify(parse_reference(shops), NORWEGIAN, HANGING)
                assert verdict.data["failure"] == "deadline"
        finally:
            await pool.close()
        assert pool.jobs == ["GoldJob", *["PredictionJob"] * 2]

    asyncio.run(twice())


def test_right_and_wrong_predictions(shops: Path) -> None:
    right, wrong, by_accident, constant = verdicts(
        shops,
        [
            (NORWEGIAN, "SELECT c.name FROM city AS c WHERE 'Norway' = c.country"),
            (NORWEGIAN, "SELECT name FROM city"),
            (NORWEGIAN, "SELECT name FROM city WHERE country LIKE 'N%'"),
            (NORWEGIAN, "VALUES ('Oslo'), ('Bergen')"),
        ],
    )
    assert right.passed is True
    assert right.reasons == ()
    assert right.data["semantics"] == "multiset"
    assert right.data["instances"] == 5 + 16  # and those that confirm it
    assert 0 < right.data["prediction_seconds"] < 60
    assert 0 < right.data["gold_seconds"] < 60
    assert wrong.passed is False
    assert wrong.reasons == ("on the given database: 3 rows, expected 2",)
    assert wrong.data["instances"] == 1
    for accident in (by_accident, constant):
        assert accident.passed is False
        assert "on varied database" in accident.reasons[0]
        assert accident.data["instances"] > 1
    assert by_accident.data == json.loads(json.dumps(by_accident.data))


@pytest.mark.slow
def test_a_prediction_that_gives_no_result_fails_with_its_own_error(shops: Path) -> None:
    unknown, refused, two, rows = verdicts(
        shops,
        [
            (NORWEGIAN, "SELECT nam FROM city"),
            (NORWEGIAN, "DROP TABLE city"),
            (NORWEGIAN, "SELECT 1; SELECT 2"),
            (NORWEGIAN, "SELECT a.id FROM shop a, shop b, shop c"),
        ],
        limits=QueryLimits(seconds=60.0, rows=100),
    )
    (late,) = verdicts(shops, [(NORWEGIAN, HANGING)], limits=QueryLimits(seconds=0.2))
    found = (unknown, refused, two, late, rows)
    assert [verdict.passed for verdict in found] == [False] * 5
    assert [verdict.data["failure"] for verdict in found] == ["error", "refused", "refused", "deadline", "rows"]
    assert "no such column: nam" in unknown.reasons[0]
    assert "refused" in refused.reasons[0].lower()
    assert "The query took longer than 0.2 s" in late.reasons[0]
    assert unknown.data["instances"] == 0


def test_without_the_gold_querys_answer_nothing_is_known(shops: Path) -> None:
    found = verdicts(shops, [("SELECT nam FROM city", NORWEGIAN), ("DELETE FROM city", NORWEGIAN)])
    found += verdicts(shops, [(HANGING, NORWEGIAN), (HANGING, HANGING)], gold_seconds=0.2)
    assert [verdict.passed for verdict in found] == [None] * 4
    assert "the gold query fails: no such column: nam" in found[0].reasons[0]
    assert "The query took longer than 0.2 s" in found[2].reasons[0]


def test_empty_results_are_evidence_only_for_the_same_query(shops: Path) -> None:
    other, same, formatted, nonempty = verdicts(
        shops,
        [
            (NOWHERE, "SELECT name FROM city WHERE 1 = 0"),
            (NOWHERE, f"  {NOWHERE} ; "),
            (NOWHERE, "select Name from City where country='Norway' and country='France'"),
            (NOWHERE, NORWEGIAN),
        ],
    )
    assert other.passed is None
    assert "no evidence" in other.reasons[0]
    assert same.passed is True
    assert formatted.passed is True
    assert nonempty.passed is False


def test_order_counts_where_the_gold_query_orders(shops: Path) -> None:
    pairs = [
        (BEST, "SELECT name FROM shop ORDER BY sales DESC, id LIMIT 2"),
        (BEST, "SELECT name FROM shop ORDER BY sales LIMIT 2"),
        (BEST, f"SELECT name FROM ({BEST}) ORDER BY name"),
        (NORWEGIAN, f"{NORWEGIAN} ORDER BY name DESC"),
    ]
    assert [verdict.passed for verdict in verdicts(shops, pairs)] == [True, False, False, True]


@pytest.mark.slow
def test_the_semantics_that_are_asked_for(shops: Path) -> None:
    pairs = [
        ("SELECT country FROM city", "SELECT DISTINCT country FROM city"),
        ("SELECT name, country FROM city", "SELECT country, name FROM city"),
    ]
    for semantics, expected in {"multiset": [False, False], "set": [True, False], "test-suite": [False, True]}.items():
        comparison = Comparison(semantics)  # type: ignore[arg-type]
        assert [verdict.passed for verdict in verdicts(shops, pairs, comparison=comparison)] == expected


def test_one_instance_is_the_given_database_alone(shops: Path) -> None:
    (verdict,) = verdicts(shops, [(NORWEGIAN, "VALUES ('Oslo'), ('Bergen')")], instances=1)
    assert verdict.passed is True
    assert verdict.data["instances"] == 1


def test_rows_are_shown_where_they_are_asked_for_those_that_differ_first(shops: Path) -> None:
    (verdict,) = verdicts(shops, [(NORWEGIAN, "SELECT name FROM city WHERE id IN (2, 3)")], shown=1)
    assert verdict.data["expected"] == (("name",), ("'Oslo'",))
    assert verdict.data["got"] == (("name",), ("'Lyon'",))


def test_a_changed_database_gets_new_answers(shops: Path) -> None:
    ref = parse_reference(shops)

    async def twice(verifier: SqlVerifier) -> list[Verdict]:
        constant = "VALUES ('Oslo'), ('Bergen')"
        before = await verifier.verify(ref, NORWEGIAN, constant)
        with contextlib.closing(sqlite3.connect(shops)) as connection, connection:
            connection.execute("INSERT INTO city VALUES (4, 'Bodo', 'Norway')")
        return [before, await verifier.verify(ref, NORWEGIAN, constant)]

    before, after = with_verifier(twice, VerifyOptions(instances=1))
    assert (before.passed, after.passed) == (True, False)
    assert after.reasons == ("on the given database: 2 rows, expected 3",)


@pytest.mark.slow
@pytest.mark.parametrize("second", [VerifyOptions(seed=1), VerifyOptions(instances=2)])
def test_two_rewards_of_one_run_have_their_own_varied_databases(shops: Path, second: VerifyOptions) -> None:
    """They share workers, and ask about the same gold query."""
    ref, gold = parse_reference(shops), "SELECT id FROM city WHERE id * 3 + 1 = 7 AND country = 'Norway'"

    async def both() -> list[Verdict]:
        pool = WorkerPool(workers=1)
        try:
            verifiers = [SqlVerifier(pool, VerifyOptions()), SqlVerifier(pool, second)]
            return [await each.verify(ref, gold, f"SELECT * FROM ({gold})") for each in verifiers]
        finally:
            await pool.close()

    assert [verdict.passed for verdict in asyncio.run(both())] == [True, True]


def test_the_gold_query_runs_once_for_all_who_ask(shops: Path) -> None:
    slow = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 300000) SELECT count(*) FROM r"
    ref = parse_reference(shops)

    async def ask(verifier: SqlVerifier) -> list[Verdict]:
        first = await asyncio.gather(*(verifier.verify(ref, slow, "SELECT 300000") for _ in range(8)))
        return [*first, await verifier.verify(ref, slow, "SELECT 300000")]

    found = with_verifier(ask)
    assert all(verdict.passed for verdict in found)
    assert len({verdict.data["gold_seconds"] for verdict in found}) == 1


def test_one_who_gives_up_does_not_stop_the_gold_query_for_others(shops: Path) -> None:
    slow = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 300000) SELECT count(*) FROM r"
    ref = parse_reference(shops)

    async def ask(verifier: SqlVerifier) -> Verdict:
        first = asyncio.ensure_future(verifier.verify(ref, slow, "SELECT 300000"))
        second = asyncio.ensure_future(verifier.verify(ref, slow, "SELECT 300000"))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert with_verifier(ask).passed is True


def test_a_database_that_is_gone_is_a_fault_and_no_verdict(shops: Path) -> None:
    ref = parse_reference(shops)
    shops.unlink()

    async def ask(verifier: SqlVerifier) -> Verdict:
        found: Verdict = await verifier.verify(ref, NORWEGIAN, NORWEGIAN)
        return found

    verdict = with_verifier(ask)
    assert verdict.passed is None
    assert "cannot be read" in verdict.reasons[0]


@pytest.mark.parametrize("options", [{"instances": 0}, {"limits": QueryLimits(seconds=0)}, {"gold_seconds": -1.0}])
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        VerifyOptions(**options)
