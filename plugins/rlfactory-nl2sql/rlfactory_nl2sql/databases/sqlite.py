"""SQLite in this process: a file that is opened read-only, and its varied copies in memory."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlfactory_core.errors import BackendError, nearest
from rlfactory_nl2sql.checks.parsing import check_characters
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, Row, Rows, TableRows
from rlfactory_nl2sql.databases.limiting import STEP, Budget, collect, failed, late
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.databases.sqlite_file import empty_copy, filled_copy, lossless, open_file, read_schema
from rlfactory_nl2sql.databases.sqlite_guard import MAX_SQL, MAX_VALUE, lock
from rlfactory_nl2sql.schema import Schema

# SQLite's messages, compared as a whole, since a query can put words into a message.
_LOST = (
    "database disk image is malformed",
    "file is not a database",
    "database is locked",
    "database table is locked",
    "locking protocol",
    "attempt to write a readonly database",
)
_NO_ROOM = ("disk I/O error", "database or disk is full", "unable to open database file")
_SHOWN = 500  # characters of them
_READ = 10_000  # characters or bytes of one value in a sample
_UNKNOWN = re.compile(r"no such (table|column): (?:.*\.)?(.{1,100})", re.DOTALL)


class SqliteDatabase(Connection):
    """An open and locked database. See `connection.Connection`."""

    dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        super().__init__(name)
        self._connection = connection
        self._guard = lock(connection)
        self._empty: sqlite3.Connection | None = None

    def query(self, sql: str, limits: QueryLimits) -> Rows:
        check_characters(sql, MAX_SQL)
        self._guard.reason = ""
        budget = Budget(limits.seconds)
        self._connection.set_progress_handler(budget.over, STEP)
        try:
            try:
                self._connection.text_factory = str  # much faster than `lossless`
                found = self._collected(sql, limits)
            except sqlite3.OperationalError as error:
                if not str(error).startswith("Could not decode to UTF-8"):
                    raise
                self._connection.text_factory = lossless
                found = self._collected(sql, limits)
            if budget.over():  # within one instruction
                raise late(limits.seconds)
            return found
        except (sqlite3.Error, sqlite3.Warning, MemoryError) as error:
            raise self._failure(error, limits) from None
        finally:
            self.used = budget.used
            self._connection.set_progress_handler(None, 0)
            self._connection.text_factory = lossless

    def _collected(self, sql: str, limits: QueryLimits) -> Rows:
        with contextlib.closing(self._connection.cursor()) as cursor:
            cursor.execute(sql)
            if cursor.description is None:
                raise QueryError(Failure.ERROR, "This is not a query: it has no result.")
            return collect(tuple(column[0] for column in cursor.description), cursor, limits, None)

    def _read_schema(self) -> Schema:
        try:
            return read_schema(self._connection)
        except sqlite3.Error as error:
            raise _lost(self._name, error) from error

    def _sample(self, sql: str, rows: int) -> Sequence[Row]:
        """Values are cut, and text that is not UTF-8 is replaced: a copy could not hold it."""
        before = self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, (1 << 31) - 1)
        try:
            return [tuple(map(_storable, row)) for row in self._connection.execute(sql)]
        except (sqlite3.Error, MemoryError) as error:
            raise _lost(self._name, error) from error
        finally:
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, before)

    def instance(self, data: TableRows) -> SqliteDatabase:
        """A copy in memory, without CHECKs, and with empty virtual tables.

        Rows that violate a constraint outside the schema, such as a unique index over an expression, are left out.
        """
        name = f"a varied copy of {self._name}"
        tables = [(self._known(table), rows) for table, rows in data.items()]
        try:
            if self._empty is None:
                self._empty = empty_copy(self._connection)
            made = SqliteDatabase(filled_copy(self._empty, tables), name)
        except (sqlite3.Error, MemoryError, OverflowError, UnicodeEncodeError) as error:
            raise BackendError(f"{name} cannot be made: {error}.") from error
        made._schema = self.schema()
        return made

    def close(self) -> None:
        self._connection.close()
        if self._empty is not None:
            self._empty.close()

    def _failure(self, error: Exception, limits: QueryLimits) -> Exception:
        message = str(error)
        if self._guard.reason:
            return failed(Failure.REFUSED, self._guard.reason)
        if isinstance(error, MemoryError):
            return failed(Failure.MEMORY, message)
        if message == "interrupted":
            return late(limits.seconds)
        if "one statement at a time" in message and not isinstance(error, sqlite3.OperationalError):
            return failed(Failure.REFUSED, "there is more than one statement")
        if message == "string or blob too big":
            return QueryError(Failure.BYTES, f"The query makes or reads a value of more than {MAX_VALUE:,} bytes.")
        if message in _NO_ROOM and self._answers():
            return QueryError(Failure.MEMORY, "The query needs more room for what it sorts or keeps than it may use.")
        if message in (*_LOST, *_NO_ROOM) or message.startswith("malformed database schema ("):
            return _lost(self._name, error)
        shown = message if len(message) <= _SHOWN else f"{message[:_SHOWN]}…"  # SQLite quotes text that it cannot read
        return QueryError(Failure.ERROR, shown + self._hint(message))

    def _answers(self) -> bool:
        with contextlib.suppress(sqlite3.Error):
            return bool(self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone())
        return False

    def _hint(self, message: str) -> str:
        match = _UNKNOWN.fullmatch(message)
        if match is None:
            return ""
        tables = self.schema().tables
        if match[1] == "table":
            return ". " + nearest(match[2], (table.name for table in tables))
        close = nearest(match[2], (column.name for table in tables for column in table.columns))
        return f". {close}" if close.startswith("Did") else ""  # a list of all columns would be too long


def open_database(ref: DatabaseRef, limits: QueryLimits) -> SqliteDatabase:
    """A database file, opened read-only; raises `BackendError` if it cannot be read.

    ``limits.memory_mb`` becomes SQLite's hard heap limit, which holds for the whole process and can only be lowered.
    """
    try:
        connection = open_file(Path(ref.location))
        connection.execute(f"PRAGMA hard_heap_limit = {limits.memory_mb << 20}")
        return SqliteDatabase(connection, ref.location)
    except sqlite3.Error as error:
        raise _lost(ref.location, error) from error


def _lost(name: str, error: Exception) -> BackendError:
    return BackendError(f"The database {name} cannot be read: {error}.")


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_READ].encode("utf-8", "replace").decode()
    return value[:_READ] if isinstance(value, bytes) else value
