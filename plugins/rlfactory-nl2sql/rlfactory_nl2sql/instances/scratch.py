"""A table of one row in memory, for which SQLite evaluates CHECKs and conditions before rows reach a database."""

from __future__ import annotations

import datetime as dt
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
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
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.execute("PRAGMA ignore_check_constraints = ON")
        if most is not None:
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)
        try:
            if model is None:
                raise sqlite3.ProgrammingError
            stored = sorted({*self._places.values()} - self._generated)
            names, marks = ", ".join(self._columns[place] for place in stored), ", ".join("?" * len(stored))
            self._connection.execute("BEGIN")
            self._connection.execute(table.sql)
            insert = f"INSERT INTO {self._name} ({names}) VALUES ({marks})"  # noqa: S608 - a name in quotes
            self._connection.execute(insert, [plain(model[place]) for place in stored])
        except (sqlite3.Error, OverflowError, UnicodeError):  # for example a function or a collation of its program
            self._connection.rollback()
            self._generated = set()
            self._connection.execute(f"CREATE TABLE {self._name} ({', '.join(self._columns)})")
            self._connection.execute(f"INSERT INTO {self._name} DEFAULT VALUES")
        self._connection.set_authorizer(self._authorize)

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ and second:
            self._read.add(second)
        refused = action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in REFUSED_FUNCTIONS
        return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

    def places(self, sql: str) -> tuple[int, ...] | None:
        """The places of the columns that an expression reads; of all, if it reads a generated one.

        None if SQLite cannot evaluate it, for example a function of another database.
        """
        self._read.clear()
        try:
            self._connection.execute(f"SELECT ({sql}\n) FROM {self._name} LIMIT 0")  # noqa: S608 - as `ask`
        except sqlite3.Error:
            return None
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
        self._connection.close()


class Checks:
    """The declared CHECKs of one table that SQLite can evaluate; others are not known to hold.

    Args:
        given: rows of the table.
    """

    def __init__(self, table: Table, given: Sequence[Row] = ()) -> None:
        self._scratch = Scratch(table, given[0] if given else None) if table.checks else None
        read = [(sql, self._scratch.places(sql)) for sql in table.checks] if self._scratch else []
        self._all = [(sql, places) for sql, places in read if places is not None]
        self.places = frozenset(place for _, places in self._all for place in places)  # of the columns that they read

    def hold(self, row: Sequence[Any]) -> bool:
        """Whether a row violates none; NULL is no violation."""
        return all(self._holds(sql, {place: row[place] for place in places}) for sql, places in self._all)

    def allows(self, place: int, value: Any) -> bool:
        """Whether the CHECKs of this column alone hold for a value."""
        return all(self._holds(sql, {place: value}) for sql, places in self._all if places == (place,))

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.close()

    def _holds(self, sql: str, values: Mapping[int, Any]) -> bool:
        assert self._scratch is not None  # there are CHECKs
        try:
            (violated,) = self._scratch.ask(values, f"NOT ({sql}\n)")
        except sqlite3.IntegrityError:  # another type in a STRICT table; a reference that NOT NULL wants is set later
            return None in values.values()
        except (sqlite3.Error, OverflowError, UnicodeError):
            return False
        return not violated


def plain(value: Any) -> Any:
    """A value as SQLite takes it."""
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, dt.date | dt.time | dt.timedelta | uuid.UUID) else value
