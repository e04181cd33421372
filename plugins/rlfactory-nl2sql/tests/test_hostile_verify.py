"""Hostile SQL on the whole way to a verdict: in time, with the pool alive, the file as it was, the event loop free."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path

import pytest
from rlfactory_nl2sql.connection import QueryLimits
from rlfactory_nl2sql.databases.reference import parse_reference
from rlfactory_nl2sql.verification.gold import VerifyOptions
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.verifier import SqlVerifier

from rlfactory_core.types import Verdict

GOLD = "SELECT name FROM city WHERE country = 'Norway'"
RIGHT = "SELECT c.name FROM city c WHERE c.country = 'Norway'"
DEADLINE_S = 0.5
PATIENCE_S = 300.0  # a verdict that never comes fails the test
_R = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
ENDLESS = {
    "count": f"{_R} SELECT count(*) FROM r",
    "sort": f"{_R} SELECT n FROM r ORDER BY n DESC",
    "window": f"{_R} SELECT sum(n) OVER (ORDER BY n) FROM r",
    "collect": f"{_R} SELECT group_concat(n) FROM r",
    "hoard": f"{_R} SELECT count(DISTINCT n || hex(zeroblob(2000))) FROM r",
    "cross join": "SELECT count(*) FROM " + ", ".join(f"shop s{number}" for number in range(20)),
    "one call": "SELECT length(printf('%.*c', 999999999, 'x'))",
}
BOUNDED = {
    "blob": "SELECT zeroblob(1000000000)",
    "random blob": "SELECT length(randomblob(999999999))",
    "grow": "WITH RECURSIVE r(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM r) SELECT max(length(s)) FROM r",
    "rows": f"{_R} SELECT n FROM r",
    "10 MB": "SELECT " + "1+" * 5_000_000 + "1",
    "nested": "SELECT " + "(" * 100_000 + "1" + ")" * 100_000,
    "attach": "ATTACH 'other.sqlite' AS other",
    "vacuum": "VACUUM INTO 'other.sqlite'",
    "extension": "SELECT load_extension('x')",
    "write": "DELETE FROM shop",
    "pragma": "PRAGMA journal_mode = DELETE",
}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def options() -> VerifyOptions:
    return VerifyOptions(limits=QueryLimits(seconds=DEADLINE_S, memory_mb=64), gold_seconds=DEADLINE_S)


@pytest.mark.slow
def test_as_prediction_and_as_gold_query(shops: Path) -> None:
    before, ref = digest(shops), parse_reference(shops)
    hostile = {**ENDLESS, **BOUNDED}

    async def run() -> None:
        pool = WorkerPool(workers=1)
        verifier = SqlVerifier(pool, options())
        try:
            await verifier.verify(ref, GOLD, RIGHT)
            for name, sql in hostile.items():
                predicted = await asyncio.wait_for(verifier.verify(ref, GOLD, sql), PATIENCE_S)
                given = await asyncio.wait_for(verifier.verify(ref, sql, RIGHT), PATIENCE_S)
                assert predicted.passed is False, name
                assert given.passed is None, name
                if name in ENDLESS:
                    assert predicted.data["failure"] in ("deadline", "memory"), name
                assert (await verifier.verify(ref, GOLD, RIGHT)).passed is True, name
        finally:
            await pool.close()

    asyncio.run(run())
    assert digest(shops) == before
    assert {path.name for path in shops.parent.iterdir() if path.is_file()} == {shops.name}


@pytest.mark.slow
def test_many_at_once_some_of_them_endless_leave_the_event_loop_free(shops: Path) -> None:
    ref = parse_reference(shops)
    endless = list(ENDLESS.values())
    stalls: list[float] = []

    async def beat() -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.005)
            stalls.append(time.thread_time() - began)

    async def run() -> list[Verdict]:
        pool = WorkerPool(workers=2)
        verifier = SqlVerifier(pool, options())
        try:
            await verifier.verify(ref, GOLD, RIGHT)
            heart = asyncio.ensure_future(beat())
            found = await asyncio.gather(
                *(
                    verifier.verify(ref, GOLD, endless[number // 8 % len(endless)] if number % 8 == 0 else RIGHT)
                    for number in range(64)
                )
            )
            heart.cancel()
            return found
        finally:
            await pool.close()

    found = asyncio.run(run())
    for number, verdict in enumerate(found):
        assert verdict.passed is (number % 8 != 0), verdict
    assert stalls
    assert max(stalls) < DEADLINE_S  # of this thread's own work, on a busy machine, too; a query on the loop has more
