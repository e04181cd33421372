"""Copies of a database's schema in memory, with other rows."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Sequence

from rlfactory_nl2sql.connection import Row
from rlfactory_nl2sql.databases.database import quoted
from rlfactory_nl2sql.databases.sqlite_file import open_memory
from rlfactory_nl2sql.databases.sqlite_schema import generated_columns, shadow_tables
from rlfactory_nl2sql.schema import Table


def empty_copy(source: sqlite3.Connection) -> sqlite3.Connection:
    """A copy without rows. Triggers and non-unique indexes are left out, since they would only cost time."""
    made = source.execute(
        "SELECT name, type, rootpage, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND "
        "(type IN ('table', 'view') OR type = 'index' AND sql LIKE 'CREATE UNIQUE%') "
        "ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'index' THEN 1 ELSE 2 END, rowid"
    ).fetchall()
    shadows = shadow_tables(source)
    copy = open_memory()
    try:
        for name, kind, root, sql in made:
            if name.lower() in shadows:
                continue  # created by its virtual table
            virtual = kind == "table" and root == 0
            with contextlib.suppress(*((sqlite3.OperationalError,) if virtual else ())):  # its module may be missing
                copy.execute(sql)
    except BaseException:
        copy.close()
        raise
    return copy


def filled_copy(empty: sqlite3.Connection, tables: Iterable[tuple[Table, Sequence[Row]]]) -> sqlite3.Connection:
    """A copy of ``empty`` with these rows, without those that violate a constraint."""
    copy = open_memory()
    try:
        empty.backup(copy)
        copy.execute("PRAGMA ignore_check_constraints = ON")
        copy.execute("BEGIN")
        for table, rows in tables:
            if rows and not table.view:
                _insert(copy, table, rows)
        copy.execute("COMMIT")
    except BaseException:
        copy.close()
        raise
    return copy


def _insert(copy: sqlite3.Connection, table: Table, rows: Sequence[Row]) -> None:
    generated = generated_columns(copy, table.name)
    places = [place for place, column in enumerate(table.columns) if column.name not in generated]
    if len(places) < len(table.columns):
        rows = [tuple(row[place] for place in places) for row in rows]
    names = ", ".join(quoted(table.columns[place].name) for place in places)
    marks = ", ".join("?" * len(places))
    statement = f"INSERT OR IGNORE INTO {quoted(table.name)} ({names}) VALUES ({marks})"  # noqa: S608 - quoted names
    try:
        copy.executemany(statement, rows)
    except UnicodeEncodeError:
        copy.execute(f"DELETE FROM {quoted(table.name)}")  # noqa: S608 - a quoted name
        copy.executemany(statement, (tuple(map(_as_unicode, row)) for row in rows))


def _as_unicode(value: object) -> object:
    """Replace text that is not UTF-8, which cannot be stored unchanged."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
