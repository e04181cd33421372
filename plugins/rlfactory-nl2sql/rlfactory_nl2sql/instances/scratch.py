"""A table of one row in memory, for which SQLite evaluates expressions before rows reach a database."""

from __future__ import annotations

import datetime as dt
import sqlite3
import uuid
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

from rlfactory_nl2sql.connection import Row, quoted
from rlfactory_nl2sql.databases.sqlite_guard import REFUSED_FUNCTIONS
from rlfactory_nl2sql.schema import Table


class Scratch:
    """SQLite's own copy of a table, with its types, collations and generated columns, and with one given row.

    Without a row, or where its definition is not SQLite's, the columns are plain ones.

    Args:
        most: limit of the bytes of a value, for expressions that nobody has read.
    """

    def __init__(self, table: Table, model: Row | None, most: int | None = None) -> None:
        self._name, self._read = quoted(table.name), set[str]()
        self._columns = [quoted(column.name) for column in table.columns]
        self._places = {column.name: place for place, column in enumerate(table.columns)}
        self._generated = {place for place, column in enumerate(table.columns) if column.generated}
        self._most = most
        self._connection = self._opened()
        try:
            if model is None:
                raise sqlite3.ProgrammingError
            self._fill(table.sql, {*self._places.values()} - self._generated, model)
        except (sqlite3.Error, OverflowError, UnicodeError):  # for example a function or a collation of its program
            self._connection.close()
            self._generated, self._connection = set(), self._opened()
            self._fill(f"CREATE TABLE {self._name} ({', '.join(self._columns)})", set(), ())
        self._connection.set_authorizer(self._authorize)

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.execute("PRAGMA ignore_check_constraints = ON")
        if self._most is not None:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self._most)
        return connection

    def _fill(self, definition: str, places: set[int], model: Row) -> None:
        self._connection.execute(definition)
        names, marks = ", ".join(self._columns[place] for place in sorted(places)), ", ".join("?" * len(places))
        what = f"({names}) VALUES ({marks})" if places else "DEFAULT VALUES"
        values = [plain(model[place]) for place in sorted(places)]
        self._connection.execute(f"INSERT INTO {self._name} {what}", values)

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ and second:
            self._read.add(second)
        refused = action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in REFUSED_FUNCTIONS
        return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

    def places(self, sql: str) -> tuple[int, ...]:
        """The places of the columns that an expression reads; of all, if it reads a generated one.

        Raises `sqlite3.Error` if SQLite cannot evaluate it.
        """
        self._read.clear()
        self._connection.execute(f"SELECT ({sql}\n) FROM {self._name} LIMIT 0")  # noqa: S608 - as `ask`
        found = {place for name, place in self._places.items() if name in self._read}
        stored = {*self._places.values()} - self._generated
        return tuple(sorted(stored if found & self._generated else found))

    def ask(self, row: Mapping[int, Any], *expressions: str) -> Row:
        """The values of expressions, where the row has these values at these places.

        Raises `sqlite3.Error`, `OverflowError` or `UnicodeError` if it cannot have them, or SQLite cannot evaluate.
        """
        if row:
            changes = ", ".join(f"{self._columns[place]} = ?" for place in row)
            self._connection.execute(f"UPDATE {self._name} SET {changes}", [plain(row[place]) for place in row])  # noqa: S608
        asked = ", ".join(f"({one}\n)" for one in expressions)
        found: Row = self._connection.execute(f"SELECT {asked} FROM {self._name}").fetchone()  # noqa: S608
        return found

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()


def plain(value: Any) -> Any:
    """A value as SQLite takes it."""
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, dt.date | dt.time | dt.timedelta | uuid.UUID) else value
