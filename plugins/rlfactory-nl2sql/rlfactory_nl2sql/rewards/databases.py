"""The databases and worker processes that a reward uses: those of a text-to-SQL task, otherwise its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlfactory_core import Sample, Task, Trajectory, VerifierError
from rlfactory_core.errors import BackendError
from rlfactory_nl2sql.databases.reference import DatabaseRef, parse_reference, reference_in_data
from rlfactory_nl2sql.rewards.answers import predicted_sql
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.schema_cache import Schemas
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.worker import Job

_READING_S = 10.0  # the longest allowed SQL is parsed in a tenth of a second


class Databases:
    """The common part of this plugin's rewards.

    A task with ``pool`` and ``reference(sample)``, such as `Nl2SqlTask`, shares both. For any other task, a reward has
    its own worker processes, and uses ``database`` or each sample's ``metadata["database"]``.

    Args:
        database: PATH or URL of the database of all samples.
    """

    def __init__(self, database: str | None) -> None:
        self._given = parse_reference(database) if database else None
        self._own: WorkerPool | None = None

    async def open(self, task: Task) -> None:
        lent = getattr(task, "pool", None)
        if not isinstance(lent, WorkerPool):
            lent = self._own = WorkerPool()
        self.pool = lent
        self._schemas = Schemas(lent)
        self._reference: Callable[[Sample], DatabaseRef] = getattr(task, "reference", _named_by)

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()

    def reference(self, sample: Sample) -> DatabaseRef:
        """The database that a sample is about; raises `UsageError` or `VerifierError` if it is unknown."""
        return self._given or self._reference(sample)

    async def schema(self, sample: Sample) -> Schema:
        """The schema of a sample's database.

        Raises:
            VerifierError: the database does not answer.
        """
        try:
            return await self._schemas.get(self.reference(sample))
        except BackendError as error:
            raise VerifierError(str(error)) from error

    async def read(self, job: Job) -> Any:
        """Run a job that parses SQL.

        Raises:
            QueryError: the job raised it, or the SQL was too much for a worker.
            VerifierError: no worker can be started.
        """
        try:
            return await self.pool.run(job, _READING_S)
        except BackendError as error:
            raise VerifierError(str(error)) from error


@dataclass(frozen=True, slots=True)
class SubmittedQuery:
    """The SQL of a model's answer, and the database that it is for."""

    sql: str
    dialect: str
    schema: Schema


class DatabaseReward:
    """Base of the rewards that need the sample's database.

    Args:
        database: see `Databases`.
    """

    def __init__(self, database: str | None = None) -> None:
        self._databases = Databases(database)

    async def open(self, task: Task) -> None:
        await self._databases.open(task)

    async def close(self) -> None:
        await self._databases.close()

    async def _submitted(self, trajectory: Trajectory) -> SubmittedQuery | None:
        """The query of the trajectory's answer; None without an answer. Raises as `Databases.schema`."""
        sql = predicted_sql(trajectory)
        if sql is None:
            return None
        sample = trajectory.sample
        schema = await self._databases.schema(sample)
        return SubmittedQuery(sql, self._databases.reference(sample).kind, schema)


def _named_by(sample: Sample) -> DatabaseRef:
    name = sample.metadata.get("database")
    if not isinstance(name, str):
        raise VerifierError(
            f"sample {sample.id!r} names no database: its metadata has no 'database' (PATH or URL), and the reward has "
            "no option database=PATH|URL"
        )
    return reference_in_data(name)
