"""Write a database for the model: its tables, a table's columns, the rows of a result.

The texts are short, with a line for each thing. Tools answer with them, and the warm start's demonstrations show them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from rlfactory_nl2sql.connection import Rows, quoted
from rlfactory_nl2sql.schema import Schema, Table

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_FEW_TABLES = 20  # of so many, the columns are listed too
_VALUE_CHARACTERS = 200  # of one value; longer ones are cut
_SPACES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


def tables_text(schema: Schema) -> str:
    """A line for each table, ``TABLE house (id, price, city_id)``; only the names if there are many tables."""
    few = len(schema.tables) <= _FEW_TABLES
    lines = [
        f"{_kind(table)} {_name(table.name)}" + (f" {_names(column.name for column in table.columns)}" if few else "")
        for table in schema.tables
    ]
    return "\n".join(lines) or "No tables."


def table_line(table: Table) -> str:
    """``TABLE house (id INTEGER PRIMARY KEY, price INTEGER, city_id INTEGER -> city.id)``.

    A key of several columns stands after the columns. Names that SQL accepts only in quotes are quoted as in the SQL
    standard.
    """
    parts = []
    targets = {key.columns: (key.target, *key.target_columns) for key in table.foreign_keys}
    for column in table.columns:
        text = f"{_name(column.name)} {column.type}".rstrip()
        if table.primary_key == (column.name,):
            text += " PRIMARY KEY"
        if target := targets.pop((column.name,), ()):
            text += f" -> {'.'.join(map(_name, target))}"
        parts.append(text)
    if len(table.primary_key) > 1:
        parts.append(f"PRIMARY KEY {_names(table.primary_key)}")
    parts += [f"{_names(columns)} -> {_name(name)} {_names(others)}" for columns, (name, *others) in targets.items()]
    return f"{_kind(table)} {_name(table.name)} ({', '.join(parts)})"


def rows_text(rows: Rows, most: int) -> str:
    """The columns' names, the first ``most`` rows with bars between values, and how many rows are left out."""
    lines = [" | ".join(map(_value, row)) for row in (rows.columns, *rows.rows[:most])]
    if not rows.rows:
        lines.append("No rows.")
    if len(rows.rows) > most:
        lines.append(f"... {len(rows.rows)} rows in all")
    return "\n".join(lines)


def _kind(table: Table) -> str:
    return "VIEW" if table.view else "TABLE"


def _names(names: Iterable[str]) -> str:
    return f"({', '.join(map(_name, names))})"


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quoted(name)


def _value(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = f"x'{value[:_VALUE_CHARACTERS].hex()}'"
    else:
        text = format(value, "f") if isinstance(value, Decimal) else str(value)
    text = text.translate(_SPACES)
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}..."
