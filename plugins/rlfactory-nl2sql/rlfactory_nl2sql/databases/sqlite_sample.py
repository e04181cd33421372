"""Sample a SQLite table: rows spread over the table, always the same, found fast among millions."""

from __future__ import annotations

import sqlite3

from rlfactory_nl2sql.connection import Row
from rlfactory_nl2sql.databases.sqlite_schema import quoted
from rlfactory_nl2sql.schema import Table

_MOST = 10_000  # characters or bytes of one value; longer ones are cut


def sample(connection: sqlite3.Connection, table: Table, number: int) -> list[Row]:
    """At most ``number`` rows, in the table's order."""
    names = ", ".join(quoted(column.name) for column in table.columns)
    source = f"SELECT {names} FROM {quoted(table.name)}"  # noqa: S608 - quoted names
    rows = connection.execute(f"{source} LIMIT ?", (number + 1,)).fetchall()
    if len(rows) > number:
        rowid = _rowid(connection, table)
        if rowid is None:
            rows = _every_nth(connection, table, names, number)
        else:
            chosen = _spread(connection, table, rowid, number)
            rows = [connection.execute(f"{source} WHERE {rowid} = ?", (one,)).fetchone() for one in chosen]
    return [tuple(value[:_MOST] if isinstance(value, str | bytes) else value for value in row) for row in rows]


def _rowid(connection: sqlite3.Connection, table: Table) -> str | None:
    """A name for the table's row number that no column has; None for views and tables WITHOUT ROWID."""
    taken = {column.name.lower() for column in table.columns}
    name = next((name for name in ("rowid", "_rowid_", "oid") if name not in taken), None)
    if name is None or table.view:
        return None
    try:
        connection.execute(f"SELECT {name} FROM {quoted(table.name)} LIMIT 0")  # noqa: S608 - quoted names
    except sqlite3.OperationalError:
        return None
    return name


def _spread(connection: sqlite3.Connection, table: Table, rowid: str, number: int) -> list[int]:
    """Row numbers at even distances, or the next existing ones; filled up with the first ones."""
    place = quoted(table.name)
    lowest, highest = (
        connection.execute(f"SELECT {end}({rowid}) FROM {place}").fetchone()[0]  # noqa: S608
        for end in ("min", "max")  # each alone uses the index; both at once scan the table
    )
    following = f"SELECT {rowid} FROM {place} WHERE {rowid} >= ? ORDER BY {rowid} LIMIT ?"  # noqa: S608
    found: set[int] = set()
    for step in range(number):
        found.update(row[0] for row in connection.execute(following, (lowest + (highest - lowest) * step // number, 1)))
    for (first,) in connection.execute(following, (lowest, number)):
        if len(found) == number:
            break
        found.add(first)
    return sorted(found)


def _every_nth(connection: sqlite3.Connection, table: Table, names: str, number: int) -> list[Row]:
    place = quoted(table.name)
    (held,) = connection.execute(f"SELECT count(*) FROM {place}").fetchone()  # noqa: S608
    numbered = f"SELECT {names}, row_number() OVER () - 1 AS place_ FROM {place}"  # noqa: S608
    return connection.execute(
        f"SELECT {names} FROM ({numbered}) WHERE place_ % ? = 0 LIMIT ?",  # noqa: S608
        (-(-held // number), number),
    ).fetchall()
