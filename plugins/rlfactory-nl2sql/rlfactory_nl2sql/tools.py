"""The tools: list the tables, describe a table, run a query.

They run in worker processes, so slow or hostile queries do not block the event loop. `formatting` writes the texts that
the model reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rlfactory_core import Sample, ToolArgumentsError, ToolContext, ToolError, ToolUnavailableError, tool
from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.tools import FunctionTool
from rlfactory_nl2sql.connection import QueryError, QueryLimits
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.verification.jobs import QueryJob, TablesJob
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.worker import Job

LIST_TABLES, DESCRIBE, RUN_QUERY = "list_tables", "describe", "run_query"

_WAITING_S = 20.0  # that a call may wait for a free worker, in addition to twice its query's time


class DatabaseTools:
    """The tools over the databases of one task; ``shown``: the number of rows that the model sees of a result."""

    def __init__(
        self, pool: WorkerPool, reference: Callable[[Sample], DatabaseRef], limits: QueryLimits, shown: int
    ) -> None:
        self._pool, self._reference, self._limits, self._shown = pool, reference, limits, shown

    @property
    def tools(self) -> Sequence[FunctionTool[..., Awaitable[str]]]:
        """The tools for a task. They only read, so calls may be repeated."""
        deadline_s = 2 * self._limits.seconds + _WAITING_S
        methods: tuple[Callable[..., Awaitable[str]], ...] = (self.list_tables, self.describe, self.run_query)
        return [tool(method, idempotent=True, deadline_s=deadline_s) for method in methods]

    async def check(self, ref: DatabaseRef) -> None:
        """Raises `BackendError` if the database does not answer."""
        try:
            await self._pool.run(TablesJob(ref))
        except QueryError as error:  # not a model's query: the worker process ended
            raise BackendError(f"The database {ref.location} does not tell its schema: {error}") from error

    async def list_tables(self, context: ToolContext) -> str:
        """List the tables of the database."""
        return str(await self._run(TablesJob(self._reference(context.sample))))

    async def describe(self, table: str, context: ToolContext) -> str:
        """Show the columns of a table.

        Args:
            table: its name.
        """
        name = table.strip().strip('"`[]')
        try:
            return str(await self._run(TablesJob(self._reference(context.sample), name or table or " ")))
        except ToolError as error:
            raise ToolArgumentsError(str(error)) from error

    async def run_query(self, sql: str, context: ToolContext) -> str:
        """Run a query and show its first rows.

        Args:
            sql: one statement that only reads.
        """
        _, text = await self._run(QueryJob(self._reference(context.sample), sql, self._limits, self._shown))
        return str(text)

    async def _run(self, job: Job) -> Any:
        try:
            return await self._pool.run(job)
        except QueryError as error:
            raise ToolError(str(error)) from error
        except (BackendError, UsageError) as error:  # UsageError: a missing driver, or a variable that is not set
            raise ToolUnavailableError(str(error)) from error


class NoDatabase(DatabaseTools):
    """The control: the same tools without data. Rewards that a policy gets with them come from guessing."""

    async def _run(self, job: Job) -> Any:
        if isinstance(job, QueryJob):
            return 0, "No rows."
        return "No columns." if isinstance(job, TablesJob) and job.table else "No tables."
