"""The reward ``bird_execution``: an answer counts as right if BIRD's own program would count it as right.

It compares on one database only, and so accepts constants: measure with it, and train with `ExecutionMatch`. A test
compares it with the program: Li et al. 2023 (https://arxiv.org/abs/2305.03111), ``bird/llm/src/evaluation.py`` of
https://github.com/AlibabaResearch/DAMO-ConvAI; ``evaluation_ex.py`` of https://github.com/bird-bench/mini_dev counts in
the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rlfactory_core import Verdict
from rlfactory_core.errors import BackendError, ConfigError
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, Row
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.rewards.databases import QueryVerdict
from rlfactory_nl2sql.verification.connections import Connections
from rlfactory_nl2sql.verification.verifier import read_verdict

LIMITS = QueryLimits(rows=2_000_000, bytes=256 << 20)  # the program itself has no limit but time


@dataclass(frozen=True, slots=True)
class BirdJob:
    """Run both queries on one database within these seconds, and compare their rows."""

    ref: DatabaseRef
    gold: str
    prediction: str
    seconds: float

    def run(self, connections: Connections) -> Verdict:
        return connections.use(self.ref, LIMITS, lambda database: self._compare(database.connection, connections))

    def _compare(self, connection: Connection, connections: Connections) -> Verdict:
        clock, where, results = connections.clock(self.seconds), Path(self.ref.location).name, []
        for name, sql in (("right query", self.gold), ("prediction", self.prediction)):
            try:
                results.append(clock.query(connection, sql, LIMITS).rows)
            except QueryError as error:
                if connections.share < 1 and error.failure is Failure.DEADLINE:
                    raise  # it begins again, with all of its seconds
                return Verdict(passed=False, reasons=(f"the {name} fails on {where}: {error}",))
        same = same_set(*results)
        return Verdict(same, () if same else (f"other rows on {where}",))


class BirdExecution(QueryVerdict):
    """Passes if both queries give the same set of rows on the given database.

    Neither the order of rows nor how often a row occurs counts; the order of columns does. Any failure counts as wrong,
    also one of the right query; here also what would write, or is larger than 2,000,000 rows or 256 MiB.

    Args:
        seconds: time limit of both queries together; BIRD's is 30.
        database: see `Databases`.

    Raises:
        ConfigError: ``seconds`` is not above 0.
    """

    deadline_s: ClassVar[float] = 600.0  # waiting for a worker included

    def __init__(self, seconds: float = 30.0, database: str | None = None) -> None:
        if not seconds > 0:
            raise ConfigError(f"A query needs more than 0 seconds; got seconds={seconds}.")
        super().__init__(database)
        self._seconds = seconds

    async def _judge(self, ref: DatabaseRef, gold: str, sql: str) -> Verdict:
        try:
            return read_verdict(await self.pool.run(BirdJob(ref, gold, sql, self._seconds)))
        except QueryError as error:  # the prediction ended its worker
            return Verdict(passed=False, reasons=(str(error),))
        except BackendError as error:
            return Verdict(None, (str(error),))


def same_set(gold: Sequence[Row], got: Sequence[Row]) -> bool:
    """Whether both have the same rows, which BIRD's program can read."""
    try:
        for text in (value for row in (*gold, *got) for value in row if isinstance(value, str)):
            text.encode()
        return set(gold) == set(got)
    except (TypeError, UnicodeEncodeError):  # an array in a row; text that is not UTF-8
        return False
