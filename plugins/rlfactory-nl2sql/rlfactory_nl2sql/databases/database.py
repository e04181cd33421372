"""What all kinds of databases do alike: keep their schema, sample tables, and write names and keys as SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from rlfactory_core.errors import BackendError
from rlfactory_nl2sql.connection import Row
from rlfactory_nl2sql.schema import Schema, Table

_SAMPLED = 1_000_000  # rows; of a larger table only the first are sampled, to bound the time

View = TypeVar("View")


def checks_of(conditions: Iterable[str], dialect: str) -> tuple[str, ...]:
    """The conditions of declared CHECKs as SQL of SQLite, without those that sqlglot cannot read."""
    found = []
    for condition in conditions:
        with suppress(SqlglotError):
            found.append(parse_one(condition, dialect).transform(_listed).sql("sqlite"))
    return tuple(found)


def _listed(node: exp.Expr) -> exp.Expr:
    """``x IN (…)`` for PostgreSQL's ``x = ANY (ARRAY[…])``; literals without MySQL's character sets."""
    if isinstance(node, exp.Introducer):
        text: exp.Expr = node.expression
        return text
    array = (
        node.expression.find(exp.Array) if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any) else None
    )
    return exp.In(this=node.this, expressions=array.expressions) if array is not None else node


class Database:
    """The common part of `connection.Connection`."""

    _quote = '"'

    def __init__(self, name: str) -> None:
        self._name = name
        self._schema: Schema | None = None

    def schema(self) -> Schema:
        if self._schema is None:
            self._schema = self._read_schema()
        return self._schema

    def read(self, table: str, rows: int) -> Sequence[Row]:
        """Every n-th of the first million rows. Their order is the database's own, which sorts nothing."""
        known = self._known(table)
        names = ", ".join(self._quoted(column.name) for column in known.columns)
        place = self._quoted(known.name)
        ((held,),) = self._own(f"SELECT count(*) FROM (SELECT 1 FROM {place} LIMIT {_SAMPLED}) AS part_", 1)  # noqa: S608
        numbered = (
            f"SELECT {names}, row_number() OVER () - 1 AS place_ "  # noqa: S608
            f"FROM (SELECT {names} FROM {place} LIMIT {_SAMPLED}) AS part_"
        )
        step = max(-(-held // rows), 1)
        return self._own(f"SELECT {names} FROM ({numbered}) AS numbered_ WHERE place_ % {step} = 0", rows)  # noqa: S608

    def _read_schema(self) -> Schema:
        """Raises `BackendError`."""
        raise NotImplementedError

    def _own(self, sql: str, rows: int) -> Sequence[Row]:
        """All rows of one of our own queries, which has about so many; raises `BackendError`."""
        raise NotImplementedError

    def _known(self, name: str) -> Table:
        found = self.schema().table(name)
        if found is None:
            raise BackendError(f"The database {self._name} has no table {name!r} any more.")
        return found

    def _keys(self, table: Table) -> list[str]:
        """The constraints of a table's keys, for its definition."""
        keys = [("PRIMARY KEY", table.primary_key), *(("UNIQUE", columns) for columns in table.unique)]
        return [f"{kind} ({', '.join(map(self._quoted, columns))})" for kind, columns in keys if columns]

    def _quoted(self, name: str) -> str:
        return quoted(name, self._quote)


def quoted(name: str, quote: str = '"') -> str:
    """A name as an SQL identifier."""
    return quote + name.replace(quote, quote * 2) + quote


def create_in_turn(
    views: Sequence[View], create: Callable[[View], object], missing: type[Exception] | tuple[type[Exception], ...]
) -> None:
    """Create each view after those that it reads; ``missing``: the error for one that reads what is not there yet."""
    while views:
        failed: list[tuple[View, Exception]] = []
        for view in views:
            try:
                create(view)
            except missing as error:
                failed.append((view, error))
        if len(failed) == len(views):
            raise failed[0][1]
        views = [view for view, _ in failed]
