"""Declared CHECKs of a table, evaluated for made-up rows before they reach a database."""

from __future__ import annotations

import datetime as dt
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import sqlglot
from sqlglot import exp

from rlfactory_nl2sql.schema import Table

Values = Sequence[Any] | Mapping[int, Any]


class Checks:
    """The CHECKs of one table that SQLite can evaluate; others are not known to hold."""

    def __init__(self, table: Table) -> None:
        self._connection = sqlite3.connect(":memory:") if table.checks else None
        self._names = tuple(column.name.lower() for column in table.columns)
        self._all = [(sql, places) for sql in table.checks if (places := self._read(sql)) is not None]
        self.places = frozenset(place for _, places in self._all for place in places)  # of the columns that they read

    def hold(self, row: Sequence[Any]) -> bool:
        """Whether a row violates none; NULL is no violation."""
        return all(self._holds(sql, places, row) for sql, places in self._all)

    def allows(self, place: int, value: Any) -> bool:
        """Whether the CHECKs of this column alone hold for a value."""
        row = {place: value}
        return all(self._holds(sql, places, row) for sql, places in self._all if places == (place,))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _read(self, sql: str) -> tuple[int, ...] | None:
        """The places of the columns that a CHECK reads; None if SQLite cannot evaluate it."""
        try:
            named = {column.name.lower() for column in sqlglot.parse_one(sql, "sqlite").find_all(exp.Column)}
            places = tuple(place for place, name in enumerate(self._names) if name in named)
            self._ask(sql, places, dict.fromkeys(places))
        except (sqlglot.errors.SqlglotError, sqlite3.Error):  # for example a function of another database
            return None
        return places

    def _holds(self, sql: str, places: Sequence[int], row: Values) -> bool:
        try:
            return bool(self._ask(sql, places, row) != 0)  # NULL is no violation
        except (sqlite3.Error, OverflowError, UnicodeError):
            return False

    def _ask(self, sql: str, places: Sequence[int], row: Values) -> Any:
        assert self._connection is not None  # there are CHECKs to ask for
        columns = ", ".join(f'? AS "{self._names[place]}"' for place in places) or "0"
        values = [_plain(row[place]) for place in places]
        return self._connection.execute(f"SELECT ({sql}) FROM (SELECT {columns})", values).fetchone()[0]  # noqa: S608 - the schema's own


def _plain(value: Any) -> Any:
    """A value as SQLite takes it."""
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, dt.date | dt.time | dt.timedelta | uuid.UUID) else value
