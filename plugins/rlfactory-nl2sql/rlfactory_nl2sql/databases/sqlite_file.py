"""Open a SQLite file without changing it or creating files beside it, read its schema, and copy it with other rows."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

from rlfactory_core.errors import BackendError
from rlfactory_nl2sql.connection import Row, quoted
from rlfactory_nl2sql.schema import Column, ForeignKey, Schema, Table

_LOCK_SECONDS = 1.0  # time to wait for a program that writes to the file
_SPILL = 64 << 20  # bytes: if files are limited below this, sorting stays in memory
_GENERATED = (2, 3)  # table_xinfo's "hidden" for VIRTUAL and STORED
_TOKENS = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^]]*\]|--[^\n]*|/\*.*?(?:\*/|$)|\w+|[^\w\s]""", re.DOTALL
)
_MUST_WRITE = "attempt to write a readonly database"  # SQLite's message if it would have to replay a journal
_HIDDEN = 1  # of a virtual table, such as the column for a full-text query


def open_file(path: Path) -> sqlite3.Connection:
    """Open a file read-only.

    In WAL mode SQLite would create files beside it. If no log exists, no program has it open, and it is immutable.

    Raises:
        BackendError: it cannot be read, or only by writing.
        sqlite3.Error: it is damaged, or locked.
    """
    try:
        with path.open("rb") as file:
            wal = file.read(20)[18:] == b"\2\2"
    except OSError as error:
        raise BackendError(f"The database {path} cannot be read ({error.strerror}).") from error
    log, index = (Path(f"{path}{ending}") for ending in ("-wal", "-shm"))
    written = log.exists() and log.stat().st_size > 0
    mode = "mode=ro&immutable=1" if wal and not written else "mode=ro"
    try:
        if wal and written and not index.exists():
            raise sqlite3.OperationalError(_MUST_WRITE)
        return _connected(f"file:{quote(os.fsencode(path))}?{mode}")
    except sqlite3.OperationalError as error:
        if str(error) != _MUST_WRITE:
            raise
        raise BackendError(
            f"A program that wrote to the database {path} was ended in the middle of that, and what holds cannot be "
            f"known without writing. Let SQLite mend it: sqlite3 '{path}' 'PRAGMA schema_version'"
        ) from error


def lossless(data: bytes) -> str:
    """Bytes that are not UTF-8 stay distinct, as lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def _connected(location: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        location, uri=True, isolation_level=None, timeout=_LOCK_SECONDS, cached_statements=8, check_same_thread=False
    )
    connection.text_factory = lossless
    # With temporary files, SQLite sorts pieces of the cache's size one by one. In memory it sorts everything at once,
    # possibly for tens of seconds, without checking the time.
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    memory = most != resource.RLIM_INFINITY and most < _SPILL
    try:
        connection.execute(f"PRAGMA temp_store = {'MEMORY' if memory else 'FILE'}")
        connection.execute("PRAGMA cache_size = -2000")  # KiB
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the first access to the file
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def read_schema(connection: sqlite3.Connection) -> Schema:
    """Tables, and views that can be read. A virtual table counts as a view: it has no keys."""
    listed = connection.execute(
        "SELECT name, type = 'view' OR rootpage = 0, sql FROM sqlite_master "
        "WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
    ).fetchall()
    shadows = _shadow_tables(connection)
    tables: dict[str, Table] = {}
    for name, view, sql in listed:
        if name in shadows:
            continue
        try:
            found = connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
        except sqlite3.DatabaseError:
            if view:
                continue
            raise
        columns = tuple(Column(row[1], row[2], not row[3], row[6] in _GENERATED) for row in found if row[6] != _HIDDEN)
        if view:
            tables[name.lower()] = Table(name, columns, view=True)
            continue
        key = tuple(row[1] for row in sorted((row for row in found if row[5]), key=lambda row: int(row[5])))
        unique, collated = _unique(connection, name, key), "collate" in sql.lower()
        checks = tuple(_checks(sql))
        tables[name.lower()] = Table(name, columns, key, (), unique, checks=checks, sql=sql, collated=collated)
    return Schema(
        tuple(replace(table, foreign_keys=tuple(_foreign_keys(connection, table, tables))) for table in tables.values())
    )


def _shadow_tables(connection: sqlite3.Connection) -> set[str]:
    """The internal tables of virtual tables; SQLite knows them from 3.37 on."""
    return {name for _, name, kind, *_ in connection.execute("PRAGMA table_list") if kind == "shadow"}


def _checks(sql: str) -> Iterator[str]:
    """The conditions of CHECKs, as they are written in the definition of a table."""
    tokens = [found for found in _TOKENS.finditer(sql) if not found[0].startswith(("--", "/*"))]
    for at, (word, opening) in enumerate(pairwise(tokens), 1):
        if word[0].lower() == "check" and opening[0] == "(":
            depth = 0
            for token in tokens[at:]:
                depth += (token[0] == "(") - (token[0] == ")")
                if not depth:
                    yield sql[opening.end() : token.start()]
                    break


def _foreign_keys(connection: sqlite3.Connection, table: Table, tables: Mapping[str, Table]) -> Iterator[ForeignKey]:
    """Foreign keys in the order of declaration, which SQLite reverses, with names as their owners write them.

    One that names no column refers to the primary key. Those that lead nowhere, which SQLite allows, are left out.
    """
    parts: dict[int, list[tuple[str, str, str | None]]] = {}
    for number, _, *part in connection.execute(f"PRAGMA foreign_key_list({quoted(table.name)})"):
        parts.setdefault(number, []).append((part[0], part[1], part[2]))
    for number in sorted(parts, reverse=True):
        (name, *_), columns, wanted = zip(*parts[number], strict=True)
        target = tables.get(name.lower())
        if target is not None and not target.view:
            known = {column.name.lower(): column.name for column in target.columns}
            found = tuple(known.get(each.lower(), "") for each in wanted if each is not None) or target.primary_key
            if all(found) and len(found) == len(columns):
                yield ForeignKey(columns, target.name, found)


def _unique(connection: sqlite3.Connection, name: str, key: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    found = []
    for _, index, unique, origin, partial in connection.execute(f"PRAGMA index_list({quoted(name)})").fetchall():
        if not unique or partial or origin == "pk":
            continue
        columns = tuple(column for _, _, column in connection.execute(f"PRAGMA index_info({quoted(index)})"))
        if None not in columns and columns != key and columns not in found:  # None: an expression
            found.append(columns)
    return tuple(reversed(found))


def empty_copy(source: sqlite3.Connection) -> sqlite3.Connection:
    """A copy without rows. Triggers and non-unique indexes are left out, since they would only cost time."""
    made = source.execute(
        "SELECT name, type = 'table' AND rootpage = 0, sql FROM sqlite_master "
        "WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND "
        "(type IN ('table', 'view') OR type = 'index' AND sql LIKE 'CREATE UNIQUE%') "
        "ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'index' THEN 1 ELSE 2 END, rowid"
    ).fetchall()
    shadows = _shadow_tables(source)
    with _in_memory() as copy:
        for name, virtual, sql in made:
            if name in shadows:
                continue  # created by its virtual table
            with contextlib.suppress(*((sqlite3.OperationalError,) if virtual else ())):  # its module may be missing
                copy.execute(sql)
        return copy


def filled_copy(empty: sqlite3.Connection, tables: Iterable[tuple[Table, Sequence[Row]]]) -> sqlite3.Connection:
    """A copy of ``empty`` with these rows, without those that violate a constraint."""
    with _in_memory() as copy:
        empty.backup(copy)
        copy.execute("PRAGMA ignore_check_constraints = ON")
        copy.execute("BEGIN")
        for table, rows in tables:
            if rows and not table.view:
                places = [place for place, column in enumerate(table.columns) if not column.generated]
                names = ", ".join(quoted(table.columns[place].name) for place in places)
                marks = ", ".join("?" * len(places))
                sql = f"INSERT OR IGNORE INTO {quoted(table.name)} ({names}) VALUES ({marks})"  # noqa: S608
                copy.executemany(sql, ([row[place] for place in places] for row in rows))
        copy.execute("COMMIT")
        return copy


@contextlib.contextmanager
def _in_memory() -> Iterator[sqlite3.Connection]:
    """A new database, closed if the block fails."""
    made = _connected(":memory:")
    try:
        yield made
    except BaseException:
        made.close()
        raise
