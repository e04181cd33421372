"""Databases for `sql_red_team`: a published schema, filled at random as the comments in its DDL say.

Nothing here is shared with `rlfactory_nl2sql.instances`, which the red team is to test.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

Value = str | int | float | None

_TABLE = re.compile(r'CREATE TABLE "?([^"(]+?)"? \( -- (\d+)')
_COLUMN = re.compile(r"    (\w+) .* -- (.*)")
_NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(slots=True)
class TableSpec:
    """What the DDL's comments say of a table."""

    name: str
    rows: int
    values: dict[str, list[str]] = field(default_factory=dict)  # alternatives, by column


def fill(schema: str, connection: sqlite3.Connection, seed: int, scales: Sequence[float] = (1.0,)) -> None:
    """Create the tables of a DDL and fill them.

    Args:
        schema: each column on a line of its own; the comment of a table is its number of rows, that of a column has
            alternatives between ``|``, where ``a..b`` is a range and ``#`` in a text stands for a digit or two.
        scales: each table has one of these times its number of rows.
    """
    rng = random.Random(seed)
    connection.executescript(schema)
    for table in _read(schema):
        _fill_table(connection, table, rng, max(1, round(table.rows * rng.choice(scales))))
    connection.commit()


def write_database(schema: str, path: Path, seed: int) -> Path:
    connection = sqlite3.connect(path)
    fill(schema, connection, seed)
    connection.close()
    return path


def _read(schema: str) -> list[TableSpec]:
    tables: list[TableSpec] = []
    for line in schema.splitlines():
        if found := _TABLE.match(line):
            tables.append(TableSpec(found[1], int(found[2])))
        elif found := _COLUMN.match(line):
            tables[-1].values[found[1]] = found[2].split(" | ")
    return tables


def _fill_table(connection: sqlite3.Connection, table: TableSpec, rng: random.Random, rows: int) -> None:
    """Rows that a constraint refuses are left out."""
    columns = connection.execute(f'PRAGMA table_info("{table.name}")').fetchall()
    links = {row[3]: (row[2], row[4]) for row in connection.execute(f'PRAGMA foreign_key_list("{table.name}")')}
    parents = {
        column: [key for (key,) in connection.execute(f'SELECT "{key}" FROM "{parent}"')]
        for column, (parent, key) in links.items()
    }
    missing = rng.choice((0.0, 0.1, 0.3))  # the share of NULLs in this database
    draws: list[Callable[[int], Value]] = []
    for _, name, _, required, _, is_key in columns:
        draws.append(_draw(table, name, rng, parents.get(name), 0.0 if required or is_key else missing))
    insert = f'INSERT OR IGNORE INTO "{table.name}" VALUES ({", ".join("?" * len(columns))})'
    for number in range(1, rows + 1):
        connection.execute(insert, [draw(number) for draw in draws])
        for column, (parent, _) in links.items():
            if parent == table.name:
                parents[column].append(number)


def _draw(
    table: TableSpec, column: str, rng: random.Random, parents: list[int | str] | None, missing: float
) -> Callable[[int], Value]:
    """How a column's value is made, given the row's number."""
    alternatives = table.values.get(column)
    if alternatives is None and parents is None:
        return lambda number: number

    def draw(_number: int) -> Value:
        if rng.random() < missing:
            return None
        if alternatives is None:
            return rng.choice(parents) if parents else None
        return _value(rng.choice(alternatives), rng)

    return draw


def _value(alternative: str, rng: random.Random) -> Value:
    low, dots, high = alternative.partition("..")
    if dots and _NUMBER.fullmatch(low):
        digits = len(low.partition(".")[2])
        return round(rng.uniform(float(low), float(high)), digits) if digits else rng.randint(int(low), int(high))
    if dots:
        first, last = datetime.fromisoformat(low), datetime.fromisoformat(high)
        whole_days = low[11:] == high[11:]
        spread = (last - first) // timedelta(days=1 if whole_days else 0, seconds=0 if whole_days else 1)
        step = timedelta(days=rng.randint(0, spread)) if whole_days else timedelta(seconds=rng.randint(0, spread))
        return str(first + step)[: len(low)]
    if found := _NUMBER.fullmatch(alternative):
        return float(alternative) if found[1] else int(alternative)
    return re.sub("#", lambda _: str(rng.randint(0, 40)), alternative)
