"""Declared CHECKs of a table, evaluated for made-up rows before they reach a database."""

from __future__ import annotations

import datetime as dt
import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import sqlglot
from sqlglot import exp

from rlfactory_nl2sql.schema import Table


@dataclass(frozen=True, slots=True)
class Check:
    """One condition, in SQLite's dialect."""

    sql: str
    places: tuple[int, ...]  # of the columns that it reads


class Checks:
    """The CHECKs of one table that SQLite can evaluate; others are not known to hold."""

    def __init__(self, table: Table) -> None:
        self._connection = sqlite3.connect(":memory:") if table.checks else None
        self._names = tuple(column.name.lower() for column in table.columns)
        read = (self._read(text) for text in table.checks)
        self._all = tuple(check for check in read if check is not None)

    def broken(self, row: Sequence[Any]) -> tuple[int, ...]:
        """The places that the first CHECK that does not hold reads; none if all hold. NULL is no violation."""
        return next((check.places for check in self._all if not self._holds(check, row)), ())

    def allows(self, place: int, value: Any) -> bool:
        """Whether the CHECKs of this column alone hold for a value."""
        row = [None] * len(self._names)
        row[place] = value
        return all(self._holds(check, row) for check in self._all if check.places == (place,))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _read(self, text: str) -> Check | None:
        try:
            tree = sqlglot.parse_one(text, "sqlite")
        except sqlglot.errors.SqlglotError:
            return None
        named = {column.name.lower() for column in tree.find_all(exp.Column)}
        if not named <= set(self._names):
            return None
        check = Check(text, tuple(place for place, name in enumerate(self._names) if name in named))
        try:
            self._ask(check, [None] * len(self._names))
        except sqlite3.Error:  # for example a function of another database
            return None
        return check

    def _holds(self, check: Check, row: Sequence[Any]) -> bool:
        try:
            return self._ask(check, row) is not False
        except (sqlite3.Error, OverflowError, UnicodeError):
            return False

    def _ask(self, check: Check, row: Sequence[Any]) -> bool | None:
        assert self._connection is not None  # there are CHECKs to ask for
        columns = ", ".join(f'? AS "{self._names[place]}"' for place in check.places) or "0"
        values = [_plain(row[place]) for place in check.places]
        ((found,),) = self._connection.execute(f"SELECT ({check.sql}) FROM (SELECT {columns})", values)  # noqa: S608 - the schema's own
        return None if found is None else bool(found)


def _plain(value: Any) -> Any:
    """A value as SQLite takes it."""
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, dt.date | dt.time | dt.timedelta | uuid.UUID) else value
