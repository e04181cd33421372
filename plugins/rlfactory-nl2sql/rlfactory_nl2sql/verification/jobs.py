"""Jobs for the tools and rewards: run a query, read a schema, read SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.errors import BackendError, VerifierError
from rlfactory_nl2sql.checks.parsing import Query, parse_query
from rlfactory_nl2sql.checks.similarity import similarity
from rlfactory_nl2sql.connection import QueryError, QueryLimits, Rows
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.verification.connections import Connections, Database
from rlfactory_nl2sql.verification.pool import WorkerPool
from rlfactory_nl2sql.verification.shared import Shared

DEADLINE_S = 20.0  # reading a server's catalogue of many tables takes time
_SCHEMAS = 10_000  # kept in all


@dataclass(frozen=True, slots=True)
class QueryJob:
    """Run one query; returns `Rows` or raises `QueryError`."""

    ref: DatabaseRef
    sql: str
    limits: QueryLimits = field(default_factory=QueryLimits)

    def run(self, connections: Connections) -> Rows:
        def query(found: Database) -> Rows:
            connections.clock(self.limits.seconds)
            return found.connection.query(self.sql, self.limits)

        return connections.use(self.ref, self.limits, query)


@dataclass(frozen=True, slots=True)
class SchemaJob:
    """Read the database's `Schema`."""

    ref: DatabaseRef

    def run(self, connections: Connections) -> Schema:
        return connections.use(self.ref, QueryLimits(), lambda found: found.connection.schema())


class Schemas:
    """Reads schemas through the pool's workers. They are assumed not to change during a run."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._schemas: Shared[DatabaseRef, Schema] = Shared(_SCHEMAS)

    async def get(self, ref: DatabaseRef) -> Schema:
        """The schema of a database, for which concurrent callers share one request; raises `BackendError`."""
        return await self._schemas.get(ref, lambda: self._read(ref))

    async def _read(self, ref: DatabaseRef) -> Schema:
        try:
            schema: Schema = await self._pool.run(SchemaJob(ref), DEADLINE_S, affinity=ref.location)
        except QueryError as error:  # not a model's query: the worker process ended
            raise BackendError(f"The database {ref.location} does not tell its schema: {error}") from error
        return schema


@dataclass(frozen=True, slots=True)
class ReadingJob:
    """A call of a function below. Reading SQL is too slow for the event loop, and risky if a model wrote it."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def run(self, _connections: Connections) -> Any:
        return self.function(*self.arguments)


def nearest_similarity(golds: tuple[str, ...], prediction: str, dialect: str) -> float:
    """The prediction's similarity to the nearest gold query, in [0, 1]."""
    read = _parsed(golds, dialect)
    given = parse_query(prediction, dialect)
    return max(similarity(gold, given) for gold in read)


def read_tables(golds: tuple[str, ...], dialect: str) -> frozenset[str]:
    """The tables that the gold queries read, in lower case."""
    return frozenset[str]().union(*(gold.tables for gold in _parsed(golds, dialect)))


def _parsed(golds: tuple[str, ...], dialect: str) -> list[Query]:
    """The accepted queries; raises `VerifierError` if one cannot be read."""
    try:
        return [parse_query(gold, dialect) for gold in golds]
    except QueryError as error:
        raise VerifierError(f"a gold query cannot be read: {error}") from error
