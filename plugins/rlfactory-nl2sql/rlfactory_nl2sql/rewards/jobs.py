"""What rewards read in SQL, in worker processes: it is too slow for the event loop, and risky if a model wrote the SQL.

All functions raise `VerifierError` if a gold query cannot be read, and but for `problems` `QueryError` if the
prediction cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import VerifierError
from rlfactory_nl2sql.checks.canonical import canonical
from rlfactory_nl2sql.checks.names import unknown_names
from rlfactory_nl2sql.checks.parsing import Query, parse_query
from rlfactory_nl2sql.checks.similarity import similarity
from rlfactory_nl2sql.connection import QueryError
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.verification.connections import Connections


@dataclass(frozen=True, slots=True)
class ReadingJob:
    """A call of one of this module's functions."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def run(self, _connections: Connections) -> Any:
        return self.function(*self.arguments)


def problems(sql: str, dialect: str, schema: Schema) -> tuple[str, ...]:
    """Reasons why a query cannot run, from its text and the schema; empty if none is found."""
    try:
        return unknown_names(parse_query(sql, dialect), schema)
    except QueryError as error:
        return (str(error),)


def forms(golds: tuple[str, ...], prediction: str, dialect: str, schema: Schema) -> tuple[tuple[str, ...], str]:
    """The canonical forms of the gold queries and of the prediction."""
    read = _read(golds, dialect)
    form = canonical(parse_query(prediction, dialect), schema)
    return tuple(canonical(gold, schema) for gold in read), form


def nearest_similarity(golds: tuple[str, ...], prediction: str, dialect: str) -> float:
    """The prediction's similarity to the nearest gold query, in [0, 1]."""
    read = _read(golds, dialect)
    given = parse_query(prediction, dialect)
    return max(similarity(gold, given) for gold in read)


def tables(golds: tuple[str, ...], dialect: str) -> frozenset[str]:
    """The tables that the gold queries read, in lower case."""
    return frozenset[str]().union(*(gold.tables for gold in _read(golds, dialect)))


def _read(golds: tuple[str, ...], dialect: str) -> list[Query]:
    try:
        return [parse_query(gold, dialect) for gold in golds]
    except QueryError as error:
        raise VerifierError(f"a gold query cannot be read: {error}") from error
