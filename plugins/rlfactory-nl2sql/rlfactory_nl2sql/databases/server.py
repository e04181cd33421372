"""The common part of PostgreSQL and MySQL: SQLAlchemy connects and reads the schema, the driver streams rows.

A query is checked before the server sees it (`statement_guard`), and runs in a read-only transaction that is always
rolled back. Its result is streamed, so that a result of a billion rows ends at the limits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy
from sqlalchemy import exc, pool

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_nl2sql.connection import Connection, QueryError, QueryLimits, Row, Rows, TableRows
from rlfactory_nl2sql.databases.database import Database
from rlfactory_nl2sql.databases.reference import DatabaseRef, connection_url
from rlfactory_nl2sql.databases.server_schema import read_schema
from rlfactory_nl2sql.schema import Schema

_OUR_SECONDS = 30.0  # for our own queries, when tables are sampled
_OUR_BYTES = 256 << 20


def make_engine(ref: DatabaseRef, driver: str, arguments: Mapping[str, Any], **options: Any) -> sqlalchemy.Engine:
    """An engine without a connection pool and without automatic transactions.

    Args:
        driver: SQLAlchemy's name, such as ``postgresql+psycopg``.
        arguments: for the driver's ``connect``.

    Raises:
        UsageError: the URL cannot be used, or an environment variable in it is not set.
    """
    try:
        url = sqlalchemy.make_url(connection_url(ref)).set(drivername=driver)
    except (exc.ArgumentError, ValueError):
        raise UsageError(
            f"{ref.display!r} is no URL of a database. Expected such as postgresql://user:${{PGPASSWORD}}@host:5432/name."
        ) from None
    if not url.database:
        raise UsageError(f"{ref.display!r} names a server, but no database. Add it: {ref.display.rstrip('/')}/NAME.")
    return sqlalchemy.create_engine(
        url, poolclass=pool.NullPool, isolation_level="AUTOCOMMIT", connect_args=dict(arguments), **options
    )


def connect(engine: sqlalchemy.Engine, name: str) -> sqlalchemy.Connection:
    """Open a connection.

    Raises:
        BackendError: the server does not answer, or refuses the connection.
    """
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
            return read_schema(self._connection, self._relations())
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
