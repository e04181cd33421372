"""Jobs for the tools and rewards: run a query, read a schema, read SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlfactory_core.errors import VerifierError
from rlfactory_nl2sql.checks.parsing import Query, parse_query
from rlfactory_nl2sql.checks.similarity import similarity
from rlfactory_nl2sql.connection import QueryError, QueryLimits, Rows
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.verification.connections import Connections, Database


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
