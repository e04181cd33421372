"""Rewards for the SQL of an answer, whose rows are not computed: `valid_sql` and `structure`."""

from __future__ import annotations

from dataclasses import dataclass

from rlfactory_core import Sample, Score, Trajectory, Verdict
from rlfactory_core.rewards import accepted_answers
from rlfactory_nl2sql.checks.parsing import parse_query, statement
from rlfactory_nl2sql.connection import QueryError, QueryLimits
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.rewards.answers import predicted_sql
from rlfactory_nl2sql.rewards.databases import Databases, QueryVerdict
from rlfactory_nl2sql.verification.connections import Connections
from rlfactory_nl2sql.verification.gold import PREPARE_S
from rlfactory_nl2sql.verification.jobs import QueryJob, nearest_similarity

_LIMITS = QueryLimits()


@dataclass(frozen=True, slots=True)
class ValidJob:
    """Let the database compile a query that no row needs; raises `QueryError` if it cannot."""

    ref: DatabaseRef
    sql: str

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
            await self.run(ValidJob(self.reference(sample), sql), PREPARE_S + _LIMITS.seconds)
        except QueryError as error:
            return Verdict(passed=False, reasons=(str(error),))
        return Verdict(passed=True)


class Structure(Databases):
    """The similarity of the answer's syntax tree to the nearest accepted query's, in [0, 1]; 0 without a query.

    It helps a model that is seldom right. It also rewards wrong queries that look right. So keep its weight well below
    that of `ExecutionMatch`, and finish the training without it.

    Args:
        database: see `Databases`.
    """

    async def score(self, trajectory: Trajectory) -> Score:
        sql = predicted_sql(trajectory)
        golds = accepted_answers(trajectory.sample)
        if sql is None:
            return Score(0.0)
        dialect = self.reference(trajectory.sample).kind
        try:
            return Score(await self.read(nearest_similarity, golds, sql, dialect))
        except QueryError:
            return Score(0.0)
