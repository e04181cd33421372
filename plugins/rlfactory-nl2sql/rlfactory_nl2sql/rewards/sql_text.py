"""Rewards for SQL whose rows are not computed: `valid_sql` and `structure` of answers, and `query_steps` of turns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlfactory_core import FaultKind, Sample, Score, Trajectory, Verdict
from rlfactory_core.errors import ConfigError
from rlfactory_core.rewards import accepted_answers
from rlfactory_core.types import ToolCall, ToolResult, Turn
from rlfactory_nl2sql.checks.parsing import parse_query, statement
from rlfactory_nl2sql.connection import QueryError, QueryLimits
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.rewards.answers import predicted_sql
from rlfactory_nl2sql.rewards.databases import Databases, QueryVerdict
from rlfactory_nl2sql.tools import DESCRIBE, RUN_QUERY, table_name
from rlfactory_nl2sql.verification.connections import PREPARE_S, Connections
from rlfactory_nl2sql.verification.jobs import QueryJob, nearest_similarity, read_tables

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
            await self.run(ValidJob(self.reference(sample), sql), _LIMITS.seconds, PREPARE_S)
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


class QuerySteps(Databases):
    """A process reward: a score for each turn, from its tool calls.

    - A query that the database refuses costs ``error``.
    - The first description of a table that the right query reads earns ``lookup``.

    The sum over the turns stays within ``bound`` of 0 at every turn, so that with a weight of 1 all steps together are
    worth less than half a right answer. Components: ``errors`` and ``lookups``, the counts of both.

    Args:
        error: what a refused query costs.
        lookup: what the first description of a needed table earns.
        bound: the most that all steps together cost or earn.
        database: see `Databases`.

    Raises:
        ConfigError: an amount is negative or larger than the bound.
    """

    def __init__(
        self, error: float = 0.1, lookup: float = 0.05, bound: float = 0.2, database: str | None = None
    ) -> None:
        if not (0 <= error <= bound and 0 <= lookup <= bound):
            raise ConfigError(
                f"query_steps: got error={error}, lookup={lookup} and bound={bound}; expected amounts from 0 to bound."
            )
        self._error, self._lookup, self._bound = error, lookup, bound
        self.bounds = (-bound, bound)
        super().__init__(database)

    async def score(self, trajectory: Trajectory) -> Score:
        dialect = self.reference(trajectory.sample).kind
        needed = set(await self.read(read_tables, accepted_answers(trajectory.sample), dialect))
        total, errors, lookups = 0.0, 0, 0
        turns: list[float] = []
        for turn in trajectory.turns:
            before = total
            for call, result in _calls(turn):
                if call.name == RUN_QUERY and result.fault is FaultKind.TOOL:
                    errors += 1
                    total -= self._error
                elif call.name == DESCRIBE and result.fault is None and (table := _table(call)) in needed:
                    needed.remove(table)
                    lookups += 1
                    total += self._lookup
            total = min(max(total, -self._bound), self._bound)
            turns.append(total - before)
        return Score(0.0, {"errors": float(errors), "lookups": float(lookups)}, tuple(turns))


def _calls(turn: Turn) -> Iterator[tuple[ToolCall, ToolResult]]:
    """The turn's completed calls with their results."""
    results = {result.call_id: result for result in turn.results}
    return ((call, results[call.id]) for call in turn.message.tool_calls if call.id in results)


def _table(call: ToolCall) -> str:
    return table_name(str((call.arguments or {}).get("table", ""))).lower()
