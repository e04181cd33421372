"""Rewards that read the SQL of an answer and execute nothing: `valid_sql`, `exact_form` and `structure`."""

from __future__ import annotations

from rlfactory_core import Sample, Score, Trajectory, Verdict
from rlfactory_core.rewards import accepted_answers
from rlfactory_nl2sql.connection import QueryError
from rlfactory_nl2sql.rewards.answers import predicted_sql
from rlfactory_nl2sql.rewards.databases import Databases, QueryVerdict
from rlfactory_nl2sql.verification.jobs import forms, nearest_similarity, problems


class ValidSql(QueryVerdict):
    """Passes if the answer is one statement that only reads, in the database's dialect, with existing names.

    Nothing is executed. SQL that sqlglot cannot parse does not pass, even if the database might accept it.

    Args:
        database: see `Databases`.
    """

    async def _judge_sample(self, sample: Sample, sql: str) -> Verdict:
        schema, dialect = await self.schema(sample), self.reference(sample).kind
        try:
            found: tuple[str, ...] = await self.read(problems, sql, dialect, schema)
        except QueryError as error:
            found = (str(error),)
        return Verdict(not found, found)


class ExactForm(QueryVerdict):
    """Passes if the answer and an accepted query have the same canonical form (see `checks.canonical`).

    Letter case, aliases and the order of conditions, for example, do not count. This is stricter than `ExecutionMatch`,
    because many right queries have another form. It measures how close a model's queries are to the accepted ones.

    Args:
        database: see `Databases`.
    """

    async def _judge_sample(self, sample: Sample, sql: str) -> Verdict:
        schema, dialect = await self.schema(sample), self.reference(sample).kind
        try:
            golds, form = await self.read(forms, accepted_answers(sample), sql, dialect, schema)
        except QueryError as error:
            return Verdict(passed=False, reasons=(str(error),))
        same = form in golds
        return Verdict(same, () if same else ("another form",), {"form": form, "gold": golds[0]})


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
            nearest: float = await self.read(nearest_similarity, golds, sql, dialect)
        except QueryError:
            return Score(0.0)
        return Score(nearest)
