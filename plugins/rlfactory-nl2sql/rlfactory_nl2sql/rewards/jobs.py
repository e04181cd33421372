"""What rewards ask of worker processes: to read SQL, which is too slow for the event loop, and too risky over what a
model writes."""

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
    """Why a query cannot run, as far as its text and the schema tell; empty where it can."""

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
    """The canonical forms; raises `QueryError` over the prediction and `VerifierError` over a gold query."""

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
    """How like the nearest gold query the prediction is, in [0, 1]; raises as `FormsJob`."""

    golds: tuple[str, ...]
    prediction: str
    dialect: str

    def run(self, _connections: Connections) -> float:
        golds = _read(self.golds, self.dialect)
        prediction = parse_query(self.prediction, self.dialect)
        return max(similarity(gold, prediction) for gold in golds)


@dataclass(frozen=True, slots=True)
class TablesJob:
    """The tables that the gold queries read, in lower case; raises `VerifierError` where one cannot be read."""

    golds: tuple[str, ...]
    dialect: str

    def run(self, _connections: Connections) -> frozenset[str]:
        return frozenset[str]().union(*(gold.tables for gold in _read(self.golds, self.dialect)))


def _read(golds: tuple[str, ...], dialect: str) -> list[Query]:
    try:
        return [parse_query(gold, dialect) for gold in golds]
    except QueryError as error:
        raise VerifierError(f"a gold query cannot be read: {error}") from error
