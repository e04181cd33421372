"""The common part of PostgreSQL and MySQL: SQLAlchemy connects and reads the schema, the driver streams rows.

A query is checked before the server sees it (`statement_guard`), and runs in a read-only transaction that is always
rolled back. Its result is streamed, and so ends at the limits.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy
from sqlalchemy import exc, pool
from sqlalchemy.engine.reflection import Inspector, ObjectKind
from sqlalchemy.types import NullType, TypeEngine

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_nl2sql.connection import Connection, QueryError, QueryLimits, Row, Rows, TableRows
from rlfactory_nl2sql.databases.database import Database, checks_of
from rlfactory_nl2sql.databases.reference import DatabaseRef, connection_url
from rlfactory_nl2sql.schema import Column, ForeignKey, Schema, Table

_OUR_SECONDS = 30.0  # for our own queries, when tables are sampled
_OUR_BYTES = 256 << 20

_Found = Mapping[tuple[str | None, str], Any]


def make_engine(ref: DatabaseRef, driver: str, arguments: Mapping[str, Any], **options: Any) -> sqlalchemy.Engine:
    """An engine without connection pool and transactions; ``arguments`` are for the driver's ``connect``.

    Raises:
        UsageError: the URL cannot be used, or an environment variable in it is not set.
    """
    try:
        url = sqlalchemy.make_url(connection_url(ref)).set(drivername=driver)
    except (exc.ArgumentError, ValueError):
        raise UsageError(
            f"{ref.location!r} is no URL of a database. Expected such as postgresql://user:${{PGPASSWORD}}@host:5432/name."
        ) from None
    if not url.database:
        raise UsageError(f"{ref.location!r} names a server, but no database. Add it: {ref.location.rstrip('/')}/NAME.")
    return sqlalchemy.create_engine(
        url, poolclass=pool.NullPool, isolation_level="AUTOCOMMIT", connect_args=dict(arguments), **options
    )


def connect(engine: sqlalchemy.Engine, name: str) -> sqlalchemy.Connection:
    """Open a connection; raises `BackendError` if the server does not answer, or refuses the connection."""
    try:
        return engine.connect()
    except exc.DBAPIError as error:
        said = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        raise BackendError(
            f"The database {name} refuses the connection: {said[-1]}. Is the server running, and are "
            "address, account and password right?"
        ) from None


class ServerDatabase(Database):
    """A database of a server, or a varied copy of it. See `connection.Connection`."""

    def __init__(self, connection: sqlalchemy.Connection, name: str, limits: QueryLimits) -> None:
        super().__init__(name)
        self._connection = connection
        self._limits = limits

    def query(self, sql: str, limits: QueryLimits) -> Rows:
        return self._stream(self._admitted(sql), limits)

    def instance(self, data: TableRows) -> Connection:
        raise NotImplementedError

    def close(self) -> None:
        with contextlib.suppress(exc.SQLAlchemyError):  # the server may be gone
            self._connection.close()

    def _admitted(self, sql: str) -> str:
        """The SQL to send for a query; raises `QueryError` if it is not allowed."""
        raise NotImplementedError

    def _stream(self, sql: str, limits: QueryLimits) -> Rows:
        """Run the SQL in a read-only transaction within the limits."""
        raise NotImplementedError

    def _read_schema(self) -> Schema:
        try:
            return _inspected(self._connection, self._relations())
        except exc.SQLAlchemyError as error:
            raise self._lost(error) from None

    def _relations(self) -> list[tuple[str, bool]]:
        """The names of tables and views, and whether each is a view."""
        raise NotImplementedError

    def _own(self, sql: str, rows: int) -> Sequence[Row]:
        limits = QueryLimits(_OUR_SECONDS, max(rows, self._limits.rows), _OUR_BYTES, self._limits.memory_mb)
        try:
            return self._stream(sql, limits).rows
        except QueryError as error:
            raise BackendError(f"A table of {self._name} cannot be read: {error}") from error

    def _execute(self, sql: str, **values: Any) -> list[Row]:
        """Run one of our own statements about the database, outside of any transaction."""
        result = self._connection.execute(sqlalchemy.text(sql), values)
        return [tuple(row) for row in result] if result.returns_rows else []

    def _lost(self, error: BaseException, kind: type[BackendError] = BackendError) -> BackendError:
        cause = error.orig if isinstance(error, exc.DBAPIError) else error
        said = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        return kind(f"The database {self._name} does not answer any more: {said}")


def _inspected(connection: sqlalchemy.Connection, names: Sequence[tuple[str, bool]]) -> Schema:
    """Tables and views of the default schema; ``names``: these, and whether each is a view."""
    inspector = sqlalchemy.inspect(connection)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exc.SAWarning)  # types that SQLAlchemy does not know do not matter
        columns: _Found = inspector.get_multi_columns(kind=ObjectKind.ANY)
    keys: _Found = inspector.get_multi_pk_constraint()
    foreign: _Found = inspector.get_multi_foreign_keys()
    unique = _unique(inspector)
    checks: _Found = inspector.get_multi_check_constraints()
    dialect = "postgres" if connection.dialect.name == "postgresql" else "mysql"
    known = {name for name, _ in names}
    tables = []
    for name, view in names:
        found = tuple(
            Column(column["name"], _type(column["type"], connection.dialect), bool(column["nullable"]))
            for column in columns.get((None, name), ())
        )
        if view:
            tables.append(Table(name, found, view=True))
            continue
        key = tuple((keys.get((None, name)) or {}).get("constrained_columns") or ())
        references = tuple(
            ForeignKey(tuple(item["constrained_columns"]), item["referred_table"], tuple(item["referred_columns"]))
            for item in foreign.get((None, name), ())
            if item["referred_schema"] is None and item["referred_table"] in known
        )
        conditions = checks_of((item["sqltext"] for item in checks.get((None, name), ())), dialect)
        others = tuple(item for item in unique.get(name, ()) if item != key)
        tables.append(Table(name, found, key, references, others, checks=conditions))
    return Schema(tuple(tables))


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
