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
from rlfactory_nl2sql.databases.reference import DatabaseRef, connection_url
from rlfactory_nl2sql.schema import Schema, Table

_OUR_SECONDS = 30.0  # for our own queries, when tables are sampled
_OUR_BYTES = 256 << 20
_SAMPLED = 1_000_000  # rows; of a larger table only the first are sampled, to bound the time


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


class ServerDatabase:
    """A database of a server, or a varied copy of it. See `connection.Connection`."""

    dialect: str
    _quote = '"'

    def __init__(self, connection: sqlalchemy.Connection, name: str, limits: QueryLimits) -> None:
        self._connection = connection
        self._name = name
        self._limits = limits
        self._schema: Schema | None = None

    def query(self, sql: str, limits: QueryLimits) -> Rows:
        return self._stream(self._admitted(sql), limits)

    def schema(self) -> Schema:
        if self._schema is None:
            try:
                self._schema = self._read_schema()
            except exc.SQLAlchemyError as error:
                raise self._lost(error) from None
        return self._schema

    def read(self, table: str, rows: int) -> Sequence[Row]:
        """Every n-th of the first million rows in the order of the primary key; for a view the first rows."""
        known = self._known(table)
        names = ", ".join(self._quoted(column.name) for column in known.columns)
        place = self._quoted(known.name)
        try:
            if known.view:
                return self._own(f"SELECT {names} FROM {place} LIMIT {rows}", rows)  # noqa: S608
            ((held,),) = self._own(f"SELECT count(*) FROM (SELECT 1 FROM {place} LIMIT {_SAMPLED}) AS part_", 1)  # noqa: S608
            key = ", ".join(self._quoted(column) for column in known.primary_key)
            order = f"ORDER BY {key}" if key else ""
            step = -(-held // rows) if rows else 1
            if step <= 1:
                return self._own(f"SELECT {names} FROM {place} {order}", rows)  # noqa: S608
            return self._own(
                f"SELECT {names} FROM (SELECT {names}, row_number() OVER ({order}) - 1 AS place_ "  # noqa: S608
                f"FROM (SELECT {names} FROM {place} {order} LIMIT {_SAMPLED}) AS part_) AS numbered_ "
                f"WHERE mod(place_, {step}) = 0 ORDER BY place_ LIMIT {rows}",
                rows,
            )
        except QueryError as error:
            raise BackendError(f"The table {table} of {self._name} cannot be read: {error}") from error

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
        raise NotImplementedError

    def _own(self, sql: str, rows: int) -> Sequence[Row]:
        """The rows of one of our own queries."""
        limits = QueryLimits(_OUR_SECONDS, max(rows, self._limits.rows), _OUR_BYTES, self._limits.memory_mb)
        return self._stream(sql, limits).rows

    def _execute(self, sql: str, **values: Any) -> list[Row]:
        """Run one of our own statements about the database, outside of any transaction."""
        result = self._connection.execute(sqlalchemy.text(sql), values)
        return [tuple(row) for row in result] if result.returns_rows else []

    def _known(self, name: str) -> Table:
        found = self.schema().table(name)
        if found is None:
            raise BackendError(f"The database {self._name} has no table {name!r} any more.")
        return found

    def _quoted(self, name: str) -> str:
        return self._quote + name.replace(self._quote, self._quote * 2) + self._quote

    def _lost(self, error: BaseException, kind: type[BackendError] = BackendError) -> BackendError:
        cause = error.orig if isinstance(error, exc.DBAPIError) else error
        said = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        return kind(f"The database {self._name} does not answer any more: {said}")
