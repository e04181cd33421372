"""The metric ``bird_execution``: BIRD's execution accuracy, as its own evaluation program counts it.

Li et al. 2023, "Can LLM Already Serve as A Database Interface? A BIg Bench for Large-Scale Database Grounded
Text-to-SQLs" (https://arxiv.org/abs/2305.03111). The program is ``bird/llm/src/evaluation.py`` of
https://github.com/AlibabaResearch/DAMO-ConvAI; ``evaluation/evaluation_ex.py`` of https://github.com/bird-bench/mini_dev
counts in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlfactory_core import Verdict
from rlfactory_nl2sql.connection import Connection, QueryError, Row
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.rewards.published import LIMITS, PublishedMetric
from rlfactory_nl2sql.verification.connections import Connections


class BirdExecution(PublishedMetric):
    """Passes if both queries give the same set of rows on the given database.

    Neither the order of rows nor how often a row occurs counts; the order of columns does. Any failure counts as wrong,
    also one of the right query. Only what would write, or is larger than 2,000,000 rows or 256 MiB, is treated
    differently: here it counts as wrong.

    Args:
        seconds: time limit of both queries together; BIRD's is 30.
        database: see `Databases`.
    """

    def __init__(self, seconds: float = 30.0, database: str | None = None) -> None:
        super().__init__(seconds, database)

    async def _judge(self, ref: DatabaseRef, gold: str, sql: str) -> Verdict:
        return await self._run(BirdJob(ref, gold, sql, self._seconds), 2 * self._seconds)


@dataclass(frozen=True, slots=True)
class BirdJob:
    """Compare two queries as BIRD does; returns a `Verdict`."""

    ref: DatabaseRef
    gold: str
    prediction: str
    seconds: float

    def run(self, connections: Connections) -> Verdict:
        return connections.use(self.ref, LIMITS, lambda found: self._compare(found.connection, connections))

    def _compare(self, connection: Connection, connections: Connections) -> Verdict:
        connections.clock(self.seconds)
        ends = time.monotonic() + self.seconds
        results = []
        for name, sql in (("prediction", self.prediction), ("right query", self.gold)):
            try:
                limits = replace(LIMITS, seconds=max(ends - time.monotonic(), 0.0))
                results.append(distinct(connection.query(sql, limits).rows))
            except (QueryError, TypeError, UnicodeEncodeError) as error:
                return Verdict(passed=False, reasons=(f"the {name} fails: {error}",))
        same = results[0] == results[1]
        return Verdict(same, () if same else ("another set of rows",))


def distinct(rows: Sequence[Row]) -> set[Row]:
    """The set of the rows, by Python's equality.

    Raises:
        TypeError: a value, such as an array, cannot be in a set.
        UnicodeEncodeError: a text is not valid UTF-8, which ends BIRD's program too.
    """
    for row in rows:
        for value in row:
            if isinstance(value, str) and not value.isascii():
                value.encode()
    return set(rows)
