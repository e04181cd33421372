"""Jobs of worker processes for the rewards.

They parse SQL, which is too slow for the event loop, and risky if a model writes the SQL.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlfactory_core.errors import VerifierError
from rlfactory_nl2sql.checks.canonical import canonical
from rlfactory_nl2sql.checks.names import unknown_names
from rlfactory_nl2sql.checks.parsing import Query, parse_query
from rlfactory_nl2sql.checks.similarity import similarity
from rlfactory_nl2sql.connection import QueryError
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.verification.connections import Connections


@dataclass(frozen=True, slots=True)
class ProblemsJob:
    """Reasons why a query cannot run, from its text and the schema; empty if none is found."""

    sql: str
    dialect: str
    schema: Schema

    def run(self, _connections: Connections) -> tuple[str, ...]:
        try:
            return unknown_names(parse_query(self.sql, self.dialect), self.schema)
        except QueryError as error:
            return (str(error),)


@dataclass(frozen=True, slots=True)
class Forms:
    """Canonical forms."""

    golds: tuple[str, ...]
    prediction: str


@dataclass(frozen=True, slots=True)
class FormsJob:
    """The canonical forms; raises `QueryError` for the prediction and `VerifierError` for a gold query."""

    golds: tuple[str, ...]
    prediction: str
    dialect: str
    schema: Schema

    def run(self, _connections: Connections) -> Forms:
        golds = _read(self.golds, self.dialect)
        prediction = parse_query(self.prediction, self.dialect)
        return Forms(tuple(canonical(gold, self.schema) for gold in golds), canonical(prediction, self.schema))


@dataclass(frozen=True, slots=True)
class SimilarityJob:
    """The prediction's similarity to the nearest gold query, in [0, 1]; raises as `FormsJob`."""

    golds: tuple[str, ...]
    prediction: str
    dialect: str

    def run(self, _connections: Connections) -> float:
        golds = _read(self.golds, self.dialect)
        prediction = parse_query(self.prediction, self.dialect)
        return max(similarity(gold, prediction) for gold in golds)


@dataclass(frozen=True, slots=True)
class TablesJob:
    """The tables that the gold queries read, in lower case; raises `VerifierError` if one cannot be parsed."""

    golds: tuple[str, ...]
    dialect: str

    def run(self, _connections: Connections) -> frozenset[str]:
        return frozenset[str]().union(*(gold.tables for gold in _read(self.golds, self.dialect)))


def _read(golds: tuple[str, ...], dialect: str) -> list[Query]:
    try:
        return [parse_query(gold, dialect) for gold in golds]
    except QueryError as error:
        raise VerifierError(f"a gold query cannot be read: {error}") from error
