"""The tools: list the tables, describe a table, run a query.

They run in worker processes, so slow or hostile queries do not block the event loop. `formatting` writes the texts that
the model reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from rlfactory_core import Sample, ToolArgumentsError, ToolContext, ToolError, ToolUnavailableError, tool
from rlfactory_core.errors import BackendError, UsageError, nearest
from rlfactory_core.tools import FunctionTool
from rlfactory_nl2sql.connection import QueryError, QueryLimits
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.formatting import rows_text, table_line, tables_text
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.verification.connections import PREPARE_S
from rlfactory_nl2sql.verification.jobs import QueryJob, SchemaJob
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.shared import Shared

LIST_TABLES, DESCRIBE, RUN_QUERY = "list_tables", "describe", "run_query"

T = TypeVar("T")
_WAITING_S = 20.0  # that a call may wait for a free worker, in addition to twice its query's time
_SCHEMA_S = 20.0  # reading a server's catalogue of many tables takes time
_SCHEMAS = 10_000  # kept
_QUOTED = 64  # characters of an unknown name that a message quotes


class DatabaseTools:
    """The tools over the databases of one task; ``shown``: the number of rows that the model sees of a result."""

    def __init__(
        self, pool: WorkerPool, reference: Callable[[Sample], DatabaseRef], limits: QueryLimits, shown: int
    ) -> None:
        self._pool = pool
        self._schemas: Shared[DatabaseRef, Schema] = Shared(_SCHEMAS)  # assumed not to change during a run
        self._reference = reference
        self._limits = limits
        self._shown = shown

    @property
    def tools(self) -> Sequence[FunctionTool[..., Awaitable[str]]]:
        """The tools for a task. They only read, so calls may be repeated."""
        deadline_s = 2 * self._limits.seconds + _WAITING_S
        methods: tuple[Callable[..., Awaitable[str]], ...] = (self.list_tables, self.describe, self.run_query)
        return [tool(method, idempotent=True, deadline_s=deadline_s) for method in methods]

    async def schema(self, ref: DatabaseRef) -> Schema:
        """The schema of a database, for which concurrent callers share one request; raises `BackendError`."""
        return await self._schemas.get(ref, lambda: self._read_schema(ref))

    async def _read_schema(self, ref: DatabaseRef) -> Schema:
        try:
            schema: Schema = await self._pool.run(SchemaJob(ref), _SCHEMA_S, affinity=ref.location)
        except QueryError as error:  # not a model's query: the worker process ended
            raise BackendError(f"The database {ref.location} does not tell its schema: {error}") from error
        return schema

    async def list_tables(self, context: ToolContext) -> str:
        """List the tables of the database."""
        return tables_text(await _available(self.schema(self._reference(context.sample))))

    async def describe(self, table: str, context: ToolContext) -> str:
        """Show the columns of a table.

        Args:
            table: its name.
        """
        schema = await _available(self.schema(self._reference(context.sample)))
        found = schema.table(table_name(table))
        if found is None:
            names = [item.name for item in schema.tables]
            raise ToolArgumentsError(f"there is no table {table[:_QUOTED]!r}. {nearest(table[:_QUOTED], names)}")
        return table_line(found)

    async def run_query(self, sql: str, context: ToolContext) -> str:
        """Run a query and show its first rows.

        Args:
            sql: one statement that only reads.
        """
        ref = self._reference(context.sample)
        job = QueryJob(ref, sql, self._limits)
        try:
            rows = await _available(self._pool.run(job, self._limits.seconds, ref.location, prepare_s=PREPARE_S))
        except QueryError as error:
            raise ToolError(str(error)) from error
        return rows_text(rows, self._shown)


class NoDatabase(DatabaseTools):
    """The control: the same tools without data. Rewards that a policy gets with them come from guessing."""

    async def list_tables(self, context: ToolContext) -> str:
        return "No tables."

    async def describe(self, table: str, context: ToolContext) -> str:
        return "No columns."

    async def run_query(self, sql: str, context: ToolContext) -> str:
        return "No rows."


def table_name(text: str) -> str:
    """A table's name as the model writes it, without SQL's quotes."""
    return text.strip().strip('"`[]')


async def _available(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except (BackendError, UsageError) as error:  # UsageError: a missing driver, or a variable that is not set
        raise ToolUnavailableError(str(error)) from error
