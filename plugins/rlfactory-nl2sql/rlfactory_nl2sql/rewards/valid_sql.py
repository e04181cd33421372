"""The reward ``valid_sql``: the database can compile the answer. No row is computed."""

from __future__ import annotations

from dataclasses import dataclass

from rlfactory_core import Sample, Verdict
from rlfactory_nl2sql.checks.parsing import parse_query, statement
from rlfactory_nl2sql.connection import QueryError, QueryLimits
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.rewards.databases import QueryVerdict
from rlfactory_nl2sql.verification.connections import Connections
from rlfactory_nl2sql.verification.jobs import QueryJob

_LIMITS = QueryLimits()


@dataclass(frozen=True, slots=True)
class ValidJob:
    """Let the database compile a query that no row needs; raises `QueryError` if it cannot."""

    ref: DatabaseRef
    sql: str
    seconds: float = _LIMITS.seconds

    def run(self, connections: Connections) -> None:
        parse_query(self.sql, self.ref.kind)
        sql = self.sql[: statement(self.sql, self.ref.kind)[-1].end + 1]  # without a semicolon
        unneeded = f"SELECT 1 FROM (SELECT 1) AS one WHERE 1 = 0 AND EXISTS ({sql}\n)"  # noqa: S608 - any query may be asked
        QueryJob(self.ref, unneeded, _LIMITS).run(connections)


class ValidSql(QueryVerdict):
    """Passes if the answer is one statement that only reads, and the database can compile it: all its names exist.

    None of its rows is computed. SQL that sqlglot cannot parse does not pass, even if the database might accept it.

    Args:
        database: see `Databases`.
    """

    async def _judge_sample(self, sample: Sample, sql: str) -> Verdict:
        try:
            await self.run(ValidJob(self.reference(sample), sql))
        except QueryError as error:
            return Verdict(passed=False, reasons=(str(error),))
        return Verdict(passed=True)
