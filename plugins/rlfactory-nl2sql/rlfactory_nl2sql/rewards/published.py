"""The published metrics ``bird_execution`` and ``spider_test_suite``, as their own evaluation programs count.

They are for comparison with published numbers. As rewards they are weaker than `execution`, because they have no
varied databases: a constant passes.

BIRD: Li et al. 2023 (https://arxiv.org/abs/2305.03111), ``bird/llm/src/evaluation.py`` of
https://github.com/AlibabaResearch/DAMO-ConvAI; ``evaluation_ex.py`` of https://github.com/bird-bench/mini_dev counts in
the same way. Spider: Zhong, Yu and Klein 2020 (https://arxiv.org/abs/2010.02840), ``evaluation.py``, ``exec_eval.py``
and ``parse.py`` of https://github.com/taoyds/test-suite-sql-eval.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from rlfactory_core import Verdict
from rlfactory_core.errors import BackendError, ConfigError, UsageError, VerifierError
from rlfactory_nl2sql.comparison.answer import Tie
from rlfactory_nl2sql.comparison.columns import ColumnSearch
from rlfactory_nl2sql.connection import Connection, QueryError, QueryLimits, Row
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.rewards.databases import QueryVerdict
from rlfactory_nl2sql.verification.connections import Connections

# The programs themselves have no limits but time.
LIMITS = QueryLimits(rows=2_000_000, bytes=256 << 20)
_SPACED = re.compile("([<>!]) =")
_THIS_YEAR = re.compile(r"YEAR\s*\(\s*CURDATE\s*\(\s*\)\s*\)\s*", re.IGNORECASE)
# Strings, quoted names and comments (the group) stay as they are. What follows the first statement goes with DISTINCT.
_REMOVED = re.compile(
    r"""('(?:''|\\'|[^'])*'|"(?:""|\\"|[^"])*"|`[^`]*`|--[^\n]*|/\*.*?\*/)|\bdistinct\b|;.*""",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class PublishedJob:
    """Run two queries on one database, and compare their rows as a program does."""

    ref: DatabaseRef
    gold: str
    prediction: str
    seconds: float
    together: bool  # whether both queries share these seconds
    broken: bool | None  # the verdict if the right query fails
    equal: Callable[[Sequence[Row], Sequence[Row]], bool]

    def run(self, connections: Connections) -> Verdict:
        return connections.use(self.ref, LIMITS, lambda found: self._compare(found.connection, connections.clock))

    def _compare(self, connection: Connection, clock: Callable[[float], None]) -> Verdict:
        where, ends = Path(self.ref.location).name, 0.0
        results: list[Sequence[Row]] = []
        for name, sql, failed in (("right query", self.gold, self.broken), ("prediction", self.prediction, False)):
            if not (results and self.together):
                clock(self.seconds)
                ends = time.monotonic() + self.seconds
            try:
                limits = replace(LIMITS, seconds=max(ends - time.monotonic(), 0.0))
                results.append(connection.query(sql, limits).rows)
            except QueryError as error:
                return Verdict(failed, (f"the {name} fails on {where}: {error}",))
        try:
            same = self.equal(*results)
        except VerifierError as error:
            return Verdict(None, (str(error),))
        return Verdict(same, () if same else (f"other rows on {where}",))


class PublishedMetric(QueryVerdict):
    """Passes if the program would count the answer as right; raises `ConfigError` if ``seconds`` is not above 0."""

    deadline_s: ClassVar[float] = 600.0  # for all databases of a suite, and waiting for a worker

    def __init__(self, seconds: float, database: str | None = None) -> None:
        if not seconds > 0:
            raise ConfigError(f"A query needs more than 0 seconds; got seconds={seconds}.")
        super().__init__(database)
        self._seconds = seconds

    async def _run(self, job: PublishedJob) -> Verdict:
        """The verdict that a job returns; a prediction that ends its worker does not pass."""
        try:
            verdict: Verdict = await self.pool.run(job, 3 * self._seconds)
        except QueryError as error:
            return Verdict(passed=False, reasons=(str(error),))
        except BackendError as error:
            return Verdict(None, (str(error),))
        return verdict


class BirdExecution(PublishedMetric):
    """Passes if both queries give the same set of rows on the given database.

    Neither the order of rows nor how often a row occurs counts; the order of columns does. Any failure counts as wrong,
    also one of the right query; here also what would write, or is larger than 2,000,000 rows or 256 MiB.

    Args:
        seconds: time limit of both queries together; BIRD's is 30.
        database: see `Databases`.
    """

    def __init__(self, seconds: float = 30.0, database: str | None = None) -> None:
        super().__init__(seconds, database)

    async def _judge(self, ref: DatabaseRef, gold: str, sql: str) -> Verdict:
        return await self._run(PublishedJob(ref, gold, sql, self._seconds, True, False, same_set))  # noqa: FBT003


class SpiderTestSuite(PublishedMetric):
    """Passes if both queries have equal results on every database of the suite.

    The suite are the SQLite files in the folder of the sample's database. Rows count as often as they occur, columns
    may be in any order, and rows may be too unless the right query contains ``ORDER BY``. A prediction that fails is
    wrong; if the right query fails, the verdict is None, where Spider's program ends.

    The program's habits are kept: DISTINCT, and what follows the first statement, are removed from both queries, "> ="
    is mended, and "value" in a prediction becomes "1". What would write, takes longer than ``seconds``, or is larger
    than 2,000,000 rows or 256 MiB, is wrong here.

    Args:
        seconds: time limit of each query on each database.
        keep_distinct: compare with DISTINCT, as the program's option of this name does.
        database: see `Databases`.
    """

    def __init__(self, seconds: float = 60.0, keep_distinct: bool = False, database: str | None = None) -> None:
        super().__init__(seconds, database)
        self._keep_distinct = keep_distinct

    async def _judge(self, ref: DatabaseRef, gold: str, sql: str) -> Verdict:
        same = partial(equal, ordered="order by" in gold.lower())
        gold, sql = (prepare(one, self._keep_distinct) for one in (gold, sql.replace("value", "1")))
        for database in suite(ref):
            verdict = await self._run(PublishedJob(database, gold, sql, self._seconds, False, None, same))  # noqa: FBT003
            if not verdict.passed:
                return verdict
        return Verdict(passed=True)


def suite(ref: DatabaseRef) -> list[DatabaseRef]:
    """The databases beside the given one, and itself; raises `UsageError` if it is no SQLite file."""
    if ref.kind != "sqlite":
        raise UsageError(f"spider_test_suite needs SQLite files, in the folder of a database; got {ref.location}.")
    paths = sorted(path for path in Path(ref.location).parent.iterdir() if ".sqlite" in path.name)
    return [DatabaseRef("sqlite", str(path)) for path in paths]


def prepare(sql: str, keep_distinct: bool) -> str:
    """A query as the program runs it."""
    sql = _SPACED.sub(r"\1=", sql)
    if not keep_distinct:
        sql = _REMOVED.sub(lambda found: found[1] or "", sql)
    return _THIS_YEAR.sub("2020", sql)


def same_set(gold: Sequence[Row], got: Sequence[Row]) -> bool:
    """Whether both have the same rows, which BIRD's program can read."""
    try:
        for text in (value for row in (*gold, *got) for value in row if isinstance(value, str)):
            text.encode()
        return set(gold) == set(got)
    except (TypeError, UnicodeEncodeError):  # an array in a row; text that is not UTF-8
        return False


def equal(gold: Sequence[Row], got: Sequence[Row], *, ordered: bool) -> bool:
    """Whether some order of the columns, and of the rows unless they are ``ordered``, makes both results equal.

    Two results without rows are equal. Values are compared by Python's equality, but `_sorted_by_text` has to be equal
    too, as in the program: it takes (1, 10) and (1.0, 10) for different.

    Raises:
        VerifierError: their columns are so much alike that it could not be found out.
    """
    gold, got = _readable(gold), _readable(got)
    if not gold or not got:
        return not gold and not got
    if len(gold) != len(got) or len(gold[0]) != len(got[0]):
        return False
    mine, theirs = ([_sorted_by_text(row) for row in rows] for rows in (gold, got))
    if mine != theirs if ordered else set(mine) != set(theirs):
        return False
    if ordered:
        columns, others = (Counter(zip(*rows, strict=True)) for rows in (gold, got))
        return columns == others
    return ColumnSearch([Tie(gold, len(gold))], got).succeeds()


def _sorted_by_text(row: Row) -> Row:
    return tuple(sorted(row, key=lambda value: str(value) + str(type(value))))


def _readable(rows: Sequence[Row]) -> list[Row]:
    """The rows, without the bytes of texts that are not UTF-8."""
    return [
        tuple(
            value.encode("utf-8", "surrogateescape").decode("utf-8", "ignore") if isinstance(value, str) else value
            for value in row
        )
        for row in rows
    ]
