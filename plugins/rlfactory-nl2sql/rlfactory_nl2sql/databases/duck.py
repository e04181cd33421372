"""DuckDB in this process: a file that is opened read-only, or varied copies of it in memory.

Guards: the file is opened read-only. Every query runs in a read-only transaction and is a single statement that DuckDB
itself classifies as a SELECT. Access to files and the network, extensions, secrets and Python's variables are disabled,
and the configuration is locked. A query is interrupted at its deadline, between vectors of 2,048 rows; a single call on
a value of gigabytes ends by a memory limit.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from rlfactory_core.errors import BackendError
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, Row, Rows, TableRows, quoted
from rlfactory_nl2sql.databases.definitions import checks_of, create_in_turn
from rlfactory_nl2sql.databases.limiting import collect, failed, late, stopped_after
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.databases.statement_guard import Forbidden, check_text
from rlfactory_nl2sql.schema import Column, ForeignKey, Schema, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


# These show the file's path or this process's settings, or run text as SQL.
_FORBIDDEN = Forbidden(
    functions="current_setting getenv json_execute_serialized_sql query which_secret",
    relations="""
        duckdb_databases duckdb_extensions duckdb_external_file_cache duckdb_log* duckdb_secret* duckdb_settings
        duckdb_temporary_files pg_settings pragma_*""",
)
_HERE = "database_name = current_database() AND schema_name = current_schema()"
_VIEWS = f"SELECT sql FROM duckdb_views() WHERE {_HERE} AND NOT internal"  # noqa: S608
_CONFIG: dict[str, Any] = {
    "threads": "1",  # many workers share the machine; and rows come in a fixed order
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",  # otherwise FROM x reads a variable x of this program
    # DuckDB 2 has eight more threads for remote files: 64 MB of address space for each of a question's databases.
    **({} if duckdb.__version__.startswith("1.") else {"async_threads": "0"}),
}


class DuckDatabase(Connection):
    """An open and locked DuckDB database, or a varied copy in memory, without collations."""

    dialect = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, limits: QueryLimits) -> None:
        super().__init__(name)
        self._connection = connection
        self._limits = limits

    def query(self, sql: str, limits: QueryLimits) -> Rows:
        check_text(sql, "duckdb", _FORBIDDEN)
        started = time.monotonic()
        try:
            self._connection.execute("BEGIN TRANSACTION READ ONLY")
        except duckdb.Error as error:  # after an internal error the connection is unusable
            raise _lost(self._name, error) from error
        try:
            with stopped_after(limits.seconds, self._connection.interrupt):
                self._connection.execute(_only(self._connection.extract_statements(sql)))
                columns = tuple(column[0] for column in self._connection.description or ())
                return collect(columns, iter(self._connection.fetchone, None), limits, started)
        except (duckdb.Error, MemoryError, ValueError, OverflowError) as error:
            raise self._failure(error, limits) from None
        finally:
            with contextlib.suppress(duckdb.Error):  # an error may have ended the transaction
                self._connection.execute("ROLLBACK")

    def _read_schema(self) -> Schema:
        try:
            return _inspected(self._connection)
        except duckdb.Error as error:
            raise _lost(self._name, error) from error

    def _own(self, sql: str, rows: int) -> Sequence[Row]:
        try:
            return self._connection.execute(sql).fetchall()
        except duckdb.Error as error:
            raise _lost(self._name, error) from error

    def instance(self, data: TableRows) -> DuckDatabase:
        name = f"a varied copy of {self._name}"
        try:
            ((catalog,),) = self._connection.execute("SELECT current_database()").fetchall()
            views = self._connection.execute(_VIEWS).fetchall()
            other = _attached(":memory:", catalog, self._limits)
            try:
                self._fill(other, data)
                create_in_turn([sql for (sql,) in views], other.execute, duckdb.CatalogException)
                _lock(other)
            except BaseException:
                other.close()
                raise
        except (duckdb.Error, MemoryError, ValueError, OverflowError) as error:
            raise BackendError(f"{name} cannot be made: {_reduced(error)}") from error
        made = DuckDatabase(other, name, self._limits)
        made._schema = self.schema()
        return made

    def close(self) -> None:
        self._connection.close()

    def _fill(self, copy: duckdb.DuckDBPyConnection, data: TableRows) -> None:
        for table in (table for table in self.schema().tables if not table.view):
            place = self._quoted(table.name)
            parts = [
                f"{self._quoted(column.name)} {column.type}{'' if column.nullable else ' NOT NULL'}"
                for column in table.columns
            ]
            copy.execute(f"CREATE TABLE {place} ({', '.join([*parts, *self._keys(table)])})")
            if rows := data.get(table.name):
                # one list per column takes a sixth of the time of one parameter list per row
                lists = ", ".join(f"unnest(?::{column.type}[])" for column in table.columns)
                values = [list(column) for column in zip(*rows, strict=True)]
                copy.execute(f"INSERT INTO {place} SELECT {lists}", values)

    def _failure(self, error: Exception, limits: QueryLimits) -> QueryError:
        if isinstance(error, duckdb.InterruptException):
            return late(limits)
        if isinstance(error, MemoryError | duckdb.OutOfMemoryException):
            return failed(Failure.MEMORY, "")
        if isinstance(error, duckdb.PermissionException):
            return failed(Failure.REFUSED, "files, extensions and the network cannot be reached")
        said = _reduced(error)
        if "read-only mode" in said or "configuration has been locked" in said:
            return failed(Failure.REFUSED, "it would write")
        return QueryError(Failure.ERROR, said)


def open_database(ref: DatabaseRef, limits: QueryLimits) -> DuckDatabase:
    """A database file, opened read-only.

    ``limits.memory_mb`` is DuckDB's memory limit while the connection is open. Nothing is spilled to disk.

    Raises:
        BackendError: the file cannot be opened, for example because another process has opened it for writing.
    """
    path = Path(ref.location)
    if not path.is_file():
        raise BackendError(f"The database {path} is not there.")
    reserved = path.stem.lower() in ("main", "memory", "system", "temp")  # DuckDB names a database as its file
    try:
        connection = _attached(ref.location, f"{path.stem}_" if reserved else path.stem, limits)
        _lock(connection)
    except duckdb.Error as error:
        raise _lost(ref.location, error) from error
    return DuckDatabase(connection, ref.location, limits)


def _attached(location: str, catalog: str, limits: QueryLimits) -> duckdb.DuckDBPyConnection:
    """Attach the file to a new engine. Connections to one file would share an engine and its settings."""
    connection = duckdb.connect(":memory:", config={**_CONFIG, "memory_limit": f"{limits.memory_mb}MB"})
    try:
        place = location.replace("'", "''")
        options = "" if location == ":memory:" else " (READ_ONLY)"
        connection.execute(f"ATTACH '{place}' AS {quoted(catalog)}{options}")
        connection.execute(f"USE {quoted(catalog)}")
    except BaseException:
        connection.close()
        raise
    return connection


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _only(statements: list[duckdb.Statement]) -> duckdb.Statement:
    """The single SELECT among DuckDB's parsed statements; any other text is refused."""
    if len(statements) != 1:
        raise failed(Failure.REFUSED, "this is not a single query")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise failed(Failure.REFUSED, "it does not only read")
    return statements[0]


def _reduced(error: Exception) -> str:
    """DuckDB's message without settings, the marked query and the error's class."""
    said = str(error).partition("\n\nLINE ")[0].partition("\nPossible solutions")[0].strip()
    return said.partition("Error: ")[2] or said


def _lost(name: str, error: Exception) -> BackendError:
    return BackendError(f"The database {name} cannot be read: {_reduced(error)}")


def _inspected(connection: DuckDBPyConnection) -> Schema:
    """Tables and views of the current schema."""

    def rows(columns: str, source: str, where: str = "NOT internal") -> list[Row]:
        return connection.execute(f"SELECT {columns} FROM {source}() WHERE {_HERE} AND {where}").fetchall()  # noqa: S608

    columns: dict[str, list[Column]] = defaultdict(list)
    of_columns = "table_name, column_name, data_type, is_nullable"
    for table, name, kind, nullable in rows(of_columns, "duckdb_columns", "NOT internal ORDER BY column_index"):
        columns[table].append(Column(name, kind, bool(nullable)))
    declared: dict[tuple[str, str], list[Any]] = defaultdict(list)  # by table and kind
    of_constraints = (
        "table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names, expression"
    )
    for table, kind, own, target, target_columns, condition in rows(of_constraints, "duckdb_constraints", "true"):
        foreign = ForeignKey(tuple(own), target, tuple(target_columns)) if kind == "FOREIGN KEY" else None
        declared[table, kind].append(foreign or (condition if kind == "CHECK" else tuple(own)))
    for table, expressions in rows("table_name, expressions", "duckdb_indexes", "is_unique AND NOT is_primary"):
        indexed = tuple(part.strip().strip("'\"") for part in expressions.strip("[]").split(","))
        if set(indexed) <= {column.name for column in columns[table]}:  # otherwise an expression
            declared[table, "UNIQUE"].append(indexed)
    tables = [
        Table(
            name,
            tuple(columns[name]),
            next(iter(declared[name, "PRIMARY KEY"]), ()),
            tuple(declared[name, "FOREIGN KEY"]),
            tuple(dict.fromkeys(declared[name, "UNIQUE"])),
            checks=checks_of(declared[name, "CHECK"], "duckdb"),
        )
        for (name,) in rows("table_name", "duckdb_tables")
    ]
    views = [Table(name, tuple(columns[name]), view=True) for (name,) in rows("view_name", "duckdb_views")]
    return Schema((*tables, *views))
