"""The schema of a SQLite database, from its PRAGMAs."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import replace

import sqlglot
from sqlglot import exp

from rlfactory_nl2sql.connection import quoted
from rlfactory_nl2sql.schema import Column, ForeignKey, Schema, Table

_GENERATED = (2, 3)  # table_xinfo's "hidden" for VIRTUAL and STORED
_HIDDEN = 1  # of a virtual table, such as the column for a full-text query

# Suffixes that SQLite's modules append to a virtual table's name for their storage.
_SHADOWS = (
    "_content", "_segments", "_segdir", "_docsize", "_stat", "_data", "_idx", "_config", "_node", "_rowid", "_parent",
)  # fmt: skip


def read_schema(connection: sqlite3.Connection) -> Schema:
    """Tables, and views that can be read. A virtual table counts as a view: it has no keys."""
    listed = connection.execute(
        "SELECT name, type = 'view' OR rootpage = 0 FROM sqlite_master "
        "WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
    ).fetchall()
    shadows = shadow_tables(connection)
    found = [_table(connection, name, bool(view)) for name, view in listed if name.lower() not in shadows]
    tables = {table.name.lower(): table for table in found if table is not None}
    return Schema(tuple(replace(table, foreign_keys=_resolved(table, tables)) for table in tables.values()))


def shadow_tables(connection: sqlite3.Connection) -> frozenset[str]:
    """The internal tables of virtual tables, in lower case."""
    virtual = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage = 0")
    return frozenset((name + suffix).lower() for (name,) in virtual.fetchall() for suffix in _SHADOWS)


def _table(connection: sqlite3.Connection, name: str, view: bool) -> Table | None:
    try:
        found = connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
    except sqlite3.DatabaseError:
        if view:
            return None
        raise
    columns = tuple(Column(row[1], row[2], not row[3], row[6] in _GENERATED) for row in found if row[6] != _HIDDEN)
    if view:
        return Table(name, columns, view=True)
    key = tuple(row[1] for row in sorted((row for row in found if row[5]), key=lambda row: int(row[5])))
    unique = _unique(connection, name, key)
    return Table(name, columns, key, _foreign_keys(connection, name), unique, checks=_checks(connection, name))


def _checks(connection: sqlite3.Connection, name: str) -> tuple[str, ...]:
    """The conditions of CHECKs; none of a table whose text sqlglot cannot read."""
    row = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone()
    if row is None or "check" not in str(row[0]).lower():
        return ()
    try:
        tree = sqlglot.parse_one(row[0], "sqlite")
    except sqlglot.errors.SqlglotError:
        return ()
    return tuple(found.this.sql("sqlite") for found in tree.find_all(exp.CheckColumnConstraint))


def _foreign_keys(connection: sqlite3.Connection, name: str) -> tuple[ForeignKey, ...]:
    """Foreign keys in the order of declaration, which SQLite reverses; without target columns if they are implicit."""
    parts: dict[int, list[tuple[str, str, str | None]]] = {}
    for number, _, target, column, target_column, *_ in connection.execute(f"PRAGMA foreign_key_list({quoted(name)})"):
        parts.setdefault(number, []).append((target, column, target_column))
    return tuple(
        ForeignKey(tuple(column for _, column, _ in part), part[0][0], tuple(to for _, _, to in part if to is not None))
        for _, part in sorted(parts.items(), reverse=True)
    )


def _unique(connection: sqlite3.Connection, name: str, key: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    found = []
    for _, index, unique, origin, partial in connection.execute(f"PRAGMA index_list({quoted(name)})").fetchall():
        if not unique or partial or origin == "pk":
            continue
        columns = tuple(column for _, _, column in connection.execute(f"PRAGMA index_info({quoted(index)})"))
        if None not in columns and columns != key and columns not in found:  # None: an expression
            found.append(columns)
    return tuple(reversed(found))


def _resolved(table: Table, tables: Mapping[str, Table]) -> tuple[ForeignKey, ...]:
    """With names as their owners write them; those that lead nowhere, which SQLite allows, are left out.

    A foreign key that names no column refers to the primary key.
    """
    found = []
    for foreign in table.foreign_keys:
        target = tables.get(foreign.target.lower())
        if target is None or target.view:
            continue
        named = {column.name.lower(): column.name for column in target.columns}
        columns = tuple(named.get(name.lower(), "") for name in foreign.target_columns) or target.primary_key
        if all(columns) and len(columns) == len(foreign.columns):
            found.append(ForeignKey(foreign.columns, target.name, columns))
    return tuple(found)
