"""Rewards that read the SQL of an answer and execute nothing: `valid_sql`, `exact_form` and `structure`."""

from __future__ import annotations

from rlfactory_core import Score, Trajectory, Verdict
from rlfactory_core.rewards import accepted_answers
from rlfactory_nl2sql.connection import QueryError
from rlfactory_nl2sql.rewards.answers import NO_ANSWER, predicted_sql
from rlfactory_nl2sql.rewards.databases import DatabaseReward
from rlfactory_nl2sql.rewards.jobs import Forms, FormsJob, ProblemsJob, SimilarityJob


class ValidSql(DatabaseReward):
    """Passes if the answer is one statement that only reads, in the database's dialect, with existing names.

    Nothing is executed. SQL that sqlglot cannot parse does not pass, even if the database might accept it.

    Args:
        database: see `Databases`.
    """

    async def verify(self, trajectory: Trajectory) -> Verdict:
        query = await self._submitted(trajectory)
        if query is None:
            return Verdict(passed=False, reasons=(NO_ANSWER,))
        try:
            problems: tuple[str, ...] = await self._databases.read(ProblemsJob(query.sql, query.dialect, query.schema))
        except QueryError as error:
            problems = (str(error),)
        return Verdict(not problems, problems)


class ExactForm(DatabaseReward):
    """Passes if the answer and an accepted query have the same canonical form (see `checks.canonical`).

    Letter case, aliases and the order of conditions, for example, do not count. This is stricter than `ExecutionMatch`,
    because many right queries have another form. It needs no data. It measures how close a model's queries are to the
    accepted ones. Use it as a reward only if you want exactly that.

    Args:
        database: see `Databases`.
    """

    async def verify(self, trajectory: Trajectory) -> Verdict:
        query = await self._submitted(trajectory)
        if query is None:
            return Verdict(passed=False, reasons=(NO_ANSWER,))
        golds = accepted_answers(trajectory.sample)
        try:
            forms: Forms = await self._databases.read(FormsJob(golds, query.sql, query.dialect, query.schema))
        except QueryError as error:
            return Verdict(passed=False, reasons=(str(error),))
        data = {"form": forms.prediction, "gold": forms.golds[0]}
        same = forms.prediction in forms.golds
        return Verdict(same, () if same else ("another form",), data)


class Structure(DatabaseReward):
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
        dialect = self._databases.reference(trajectory.sample).kind
        try:
            similarity: float = await self._databases.read(SimilarityJob(golds, sql, dialect))
        except QueryError:
            return Score(0.0)
        return Score(similarity)
