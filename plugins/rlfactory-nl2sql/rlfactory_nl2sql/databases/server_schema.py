"""The schema of a database on a server, from SQLAlchemy's inspector."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy
from sqlalchemy import exc
from sqlalchemy.engine.reflection import Inspector, ObjectKind
from sqlalchemy.types import NullType, TypeEngine

from rlfactory_nl2sql.schema import Column, ForeignKey, Schema, Table

_Found = Mapping[tuple[str | None, str], Any]


def read_schema(connection: sqlalchemy.Connection, names: Sequence[tuple[str, bool]]) -> Schema:
    """Tables and views of the default schema.

    Args:
        names: name, and whether it is a view, in the order of the result.
    """
    inspector = sqlalchemy.inspect(connection)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exc.SAWarning)  # types that SQLAlchemy does not know do not matter
        columns: _Found = inspector.get_multi_columns(kind=ObjectKind.ANY)
    keys: _Found = inspector.get_multi_pk_constraint()
    foreign: _Found = inspector.get_multi_foreign_keys()
    unique = _unique(inspector)
    known = {name for name, _ in names}
    tables = []
    for name, view in names:
        found = tuple(_column(column, connection.dialect) for column in columns.get((None, name), ()))
        if view:
            tables.append(Table(name, found, view=True))
            continue
        key = tuple((keys.get((None, name)) or {}).get("constrained_columns") or ())
        references = tuple(
            ForeignKey(tuple(item["constrained_columns"]), item["referred_table"], tuple(item["referred_columns"]))
            for item in foreign.get((None, name), ())
            if item["referred_schema"] is None and item["referred_table"] in known
        )
        tables.append(Table(name, found, key, references, tuple(item for item in unique.get(name, ()) if item != key)))
    return Schema(tuple(tables))


def _column(found: Mapping[str, Any], dialect: sqlalchemy.Dialect) -> Column:
    return Column(found["name"], _type(found["type"], dialect), bool(found["nullable"]))


def _type(kind: TypeEngine[Any], dialect: sqlalchemy.Dialect) -> str:
    if isinstance(kind, NullType):
        return ""
    try:
        return kind.compile(dialect).partition(" COLLATE ")[0].partition(" CHARACTER SET ")[0]
    except exc.CompileError:
        return type(kind).__name__.upper()


def _unique(inspector: Inspector) -> dict[str, list[tuple[str, ...]]]:
    """By table: UNIQUE constraints and unique indexes over whole columns and all rows."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for (_, table), indexes in inspector.get_multi_indexes().items():
        for index in indexes:
            names = index["column_names"]
            partial = any(
                ending in option for option in index.get("dialect_options", {}) for ending in ("_where", "_length")
            )
            if index["unique"] and None not in names and not index.get("expressions") and not partial:
                found.setdefault(table, []).append(tuple(str(name) for name in names))
    return found
