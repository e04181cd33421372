"""Declared CHECKs of a table, evaluated for made-up rows before they reach a database."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_nl2sql.connection import Row
from rlfactory_nl2sql.instances.scratch import Scratch
from rlfactory_nl2sql.schema import Table

Values = Sequence[Any] | Mapping[int, Any]


class Checks:
    """The CHECKs of one table that SQLite can evaluate; others are not known to hold.

    Args:
        given: rows of the table.
    """

    def __init__(self, table: Table, given: Sequence[Row] = ()) -> None:
        self._scratch = Scratch(table, given[0] if given else None) if table.checks else None
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
        if self._scratch is not None:
            self._scratch.close()

    def _read(self, sql: str) -> tuple[int, ...] | None:
        """The places of the columns that a CHECK reads; None if SQLite cannot evaluate it."""
        assert self._scratch is not None  # there are CHECKs
        try:
            return self._scratch.places(sql)
        except sqlite3.Error:  # for example a function of another database
            return None

    def _holds(self, sql: str, places: Sequence[int], row: Values) -> bool:
        assert self._scratch is not None  # there are CHECKs
        values = {place: row[place] for place in places}
        try:
            (violated,) = self._scratch.ask(values, f"NOT ({sql}\n)")
        except sqlite3.IntegrityError:  # another type in a STRICT table; a reference that NOT NULL wants is set later
            return None in values.values()
        except (sqlite3.Error, OverflowError, UnicodeError):
            return False
        return not violated  # NULL is no violation
