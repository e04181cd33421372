"""The databases and worker processes that a reward uses: those of a text-to-SQL task, otherwise its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlfactory_core import Sample, Task, Trajectory, Verdict, VerifierError
from rlfactory_core.errors import BackendError
from rlfactory_core.rewards import accepted_answers
from rlfactory_nl2sql.databases.reference import DatabaseRef, parse_reference, reference_in_data
from rlfactory_nl2sql.rewards.answers import NO_ANSWER, predicted_sql
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.worker import Job


class Databases:
    """The common part of this plugin's rewards.

    A task with ``pool`` and ``reference(sample)``, such as `Nl2SqlTask`, shares both. For any other task, a reward has
    its own worker processes, and uses ``database`` or each sample's ``metadata["database"]``.

    Args:
        database: PATH or URL of the database of all samples.
    """

    def __init__(self, database: str | None = None) -> None:
        self._given = parse_reference(database) if database else None
        self._own: WorkerPool | None = None

    async def open(self, task: Task) -> None:
        lent = getattr(task, "pool", None)
        if not isinstance(lent, WorkerPool):
            lent = self._own = WorkerPool()
        self.pool = lent
        self._reference: Callable[[Sample], DatabaseRef] = getattr(task, "reference", _named_by)

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()

    def reference(self, sample: Sample) -> DatabaseRef:
        """The database that a sample is about; raises `UsageError` or `VerifierError` if it is unknown."""
        return self._given or self._reference(sample)

    async def run(self, job: Job, key: str = "") -> Any:
        """The result of a job in a worker; see `WorkerPool.run`.

        Raises:
            QueryError: the job raised it, or was too much for a worker.
            VerifierError: the job raised it, or no worker can be started, or the database does not answer.
        """
        try:
            return await self.pool.run(job, key)
        except BackendError as error:
            raise VerifierError(str(error)) from error


class QueryVerdict(Databases):
    """Base of those that judge the query of the answer; without one it does not pass."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        sql = predicted_sql(trajectory)
        if sql is None:
            return Verdict(passed=False, reasons=(NO_ANSWER,))
        return await self._judge_sample(trajectory.sample, sql)

    async def _judge_sample(self, sample: Sample, sql: str) -> Verdict:
        """The first verdict that passes of those for each accepted query; otherwise one that is unknown, if any."""
        ref = self.reference(sample)
        verdicts = []
        for gold in accepted_answers(sample):
            verdict = await self._judge(ref, gold, sql)
            if verdict.passed:
                return verdict
            verdicts.append(verdict)
        return next((verdict for verdict in verdicts if verdict.passed is None), verdicts[0])

    async def _judge(self, ref: DatabaseRef, gold: str, sql: str) -> Verdict:
        raise NotImplementedError


def _named_by(sample: Sample) -> DatabaseRef:
    name = sample.metadata.get("database")
    if not isinstance(name, str):
        raise VerifierError(
            f"sample {sample.id!r} names no database: its metadata has no 'database' (PATH or URL), and the reward has "
            "no option database=PATH|URL"
        )
    return reference_in_data(name)
