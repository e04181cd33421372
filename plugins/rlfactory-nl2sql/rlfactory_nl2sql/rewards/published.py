"""The common part of the published metrics: what other people's evaluation programs say about an answer.

They are for comparison with published numbers. As rewards they are weaker than `execution`, because they have no
varied databases: a constant passes.
"""

from __future__ import annotations

from typing import ClassVar

from rlfactory_core import Verdict
from rlfactory_core.errors import BackendError, ConfigError
from rlfactory_nl2sql.connection import QueryError, QueryLimits
from rlfactory_nl2sql.rewards.databases import QueryVerdict
from rlfactory_nl2sql.verification.worker import Job

# The programs themselves have no limits but time.
LIMITS = QueryLimits(rows=2_000_000, bytes=256 << 20)


class PublishedMetric(QueryVerdict):
    """Passes if the evaluation program would count the answer as right for an accepted query.

    Args:
        seconds: time limit, of what the subclass says.
        database: see `Databases`.

    Raises:
        ConfigError: ``seconds`` is not above 0.
    """

    deadline_s: ClassVar[float] = 600.0  # for all databases of a suite, and waiting for a worker

    def __init__(self, seconds: float, database: str | None = None) -> None:
        if not seconds > 0:
            raise ConfigError(f"A query needs more than 0 seconds; got seconds={seconds}.")
        super().__init__(database)
        self._seconds = seconds

    async def _run(self, job: Job, seconds: float) -> Verdict:
        """The verdict that a job returns; a prediction that ends its worker does not pass."""
        try:
            verdict: Verdict = await self.pool.run(job, seconds)
        except QueryError as error:
            return Verdict(passed=False, reasons=(str(error),))
        except BackendError as error:
            return Verdict(None, (str(error),))
        return verdict
