"""Declared CHECKs of a table, evaluated for made-up rows before they reach a database."""

from __future__ import annotations

import datetime as dt
import sqlite3
import uuid
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from rlfactory_nl2sql.connection import quoted
from rlfactory_nl2sql.schema import Table


class Checks:
    """The CHECKs of one table that SQLite can evaluate; others are not known to hold."""

    def __init__(self, table: Table) -> None:
        self._empty: list[Any] = [None] * len(table.columns)
        columns = ", ".join(f"? AS {quoted(column.name)}" for column in table.columns)
        self._asking: list[str] = []
        self._connection = sqlite3.connect(":memory:")
        for check in table.checks:
            with suppress(sqlite3.Error):  # for example a function of another database
                asking = f"SELECT ({check}) FROM (SELECT {columns})"  # noqa: S608 - the schema's own
                self._connection.execute(asking, self._empty)
                self._asking.append(asking)

    def hold(self, row: Sequence[Any]) -> bool:
        """Whether a row violates none; NULL is no violation."""
        try:
            values = [_plain(value) for value in row] if self._asking else []
            return all(self._connection.execute(asking, values).fetchone()[0] != 0 for asking in self._asking)
        except (sqlite3.Error, OverflowError, UnicodeError):
            return False

    def allows(self, place: int, value: Any) -> bool:
        """Whether they hold for a value of this column, if the other columns are NULL."""
        return not self._asking or self.hold([*self._empty[:place], value, *self._empty[place + 1 :]])

    def close(self) -> None:
        self._connection.close()


def _plain(value: Any) -> Any:
    """A value as SQLite takes it."""
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, dt.date | dt.time | dt.timedelta | uuid.UUID) else value
