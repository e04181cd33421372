"""The common part of PostgreSQL and MySQL: SQLAlchemy connects and reads the schema, the driver streams rows.

A query is checked before the server sees it (`statement_guard`), and runs in a read-only transaction that is always
rolled back. Its result is streamed, and so ends at the limits.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import sqlalchemy
from sqlalchemy import exc, pool
from sqlalchemy.engine.reflection import ObjectKind
from sqlalchemy.types import NullType, TypeEngine
from sqlglot import ErrorLevel, exp, parse_one
from sqlglot.errors import SqlglotError

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, Row, Rows, TableRows
from rlfactory_nl2sql.databases.limiting import collect, failed, late
from rlfactory_nl2sql.databases.reference import DatabaseRef, connection_url
from rlfactory_nl2sql.schema import Column, ForeignKey, Schema, Table

_SAMPLE_SECONDS = 30.0  # for a sample of a table
_SAMPLE_BYTES = 256 << 20
_GRACE = 0.25  # seconds to wait for the server's own timeout before we stop a query
_PATIENCE = 5.0  # seconds: a busy machine takes long to stop a query, and a connection that is aborted must be reopened
_CONNECT_SECONDS = 10

Results = AbstractContextManager[tuple[tuple[str, ...], Iterable[Row]]]
"""The names of a result's columns, and its rows as the server sends them."""


class ServerDatabase(Connection):
    """A session with a server's database, or with a varied copy of its ``original``.

    Raises:
        BackendError: the server does not answer.
        UsageError: the URL cannot be used, or the account has too many privileges; the message has the SQL for a
            suitable account.
    """

    _error: type[Exception]  # the driver's
    _account: str  # the SQL for an account that only reads; {0} is the database
    _relations: str  # a query for the names of tables and views, and whether each is a view

    def __init__(self, engine: sqlalchemy.Engine, name: str, limits: QueryLimits, original: Self | None = None) -> None:
        super().__init__(name)
        self._engine, self._limits, self._original = engine, limits, original
        self._database = str(engine.url.database)
        try:
            self._connection = engine.connect()
        except exc.DBAPIError as error:
            raise BackendError(
                f"The database {name} refuses the connection: {_first_line(error.orig)}. Is the server running, and "
                "are address, account and password right?"
            ) from None
        self._driver: Any = self._connection.connection.driver_connection
        with contextlib.ExitStack() as opened:
            opened.callback(self._connection.close)
            try:
                self._set_up()
                excess = "" if original else self._excess()
            except self._error as error:
                raise BackendError(f"The database {name} cannot be used: {self._message(error)}") from None
            if excess:
                raise UsageError(
                    f"The account of {name} may do more than read: {excess}. A model's SQL would run with these "
                    "rights. Make an account that only reads, and use that:\n" + self._account.format(self._database)
                )
            opened.pop_all()
        if original:
            self._schema = original.schema()

    @classmethod
    def open(cls, ref: DatabaseRef, limits: QueryLimits, driver: str, options: Mapping[str, Any], **more: Any) -> Self:
        """Connect to the server; ``options`` are for the driver's ``connect``, ``more`` for SQLAlchemy's engine."""
        filled = connection_url(ref)
        try:
            url = sqlalchemy.make_url(filled).set(drivername=driver)
        except (exc.ArgumentError, ValueError):
            url = None
        if url is None or not url.database:
            raise UsageError(
                f"{ref.location!r} is no URL that names a database. "
                "Expected such as postgresql://user:${PGPASSWORD}@host:5432/name."
            )
        options = {"connect_timeout": _CONNECT_SECONDS, **options}
        engine = sqlalchemy.create_engine(
            url, poolclass=pool.NullPool, isolation_level="AUTOCOMMIT", connect_args=options, **more
        )
        return cls(engine, ref.location, limits)

    def query(self, sql: str, limits: QueryLimits) -> Rows:
        return self._stream(self._admitted(sql), limits)

    def instance(self, data: TableRows) -> Self:
        if self._original is not None:
            return self._original.instance(data)
        name = f"a varied copy of {self._name}"
        made = type(self)(self._engine, name, self._limits, self)
        try:
            made._build(self, [table for table in self.schema().tables if not table.view], data)
        except (self._error, BackendError, ValueError) as error:  # ValueError: text that has no encoding
            made.close()
            denied = self._kind(error) is Failure.REFUSED
            advice = f" An account that may:\n{self._account.format(self._database)}" if denied else ""
            raise BackendError(f"{name} cannot be made: {self._message(error)}.{advice}") from error
        return made

    def close(self) -> None:
        with contextlib.suppress(exc.SQLAlchemyError):  # the server may be gone
            self._connection.close()

    @abstractmethod
    def _set_up(self) -> None:
        """Set the session's limits."""

    @abstractmethod
    def _excess(self) -> str:
        """What the account may do beside reading, as a sentence about it; empty if it is nothing."""

    @abstractmethod
    def _build(self, original: Self, tables: Sequence[Table], data: TableRows) -> None:
        """Make the tables with these rows, and the views; raises the driver's error."""

    @abstractmethod
    def _admitted(self, sql: str) -> str:
        """The SQL to send for a query; raises `QueryError` if it is not allowed."""

    @abstractmethod
    def _begin(self, seconds: float) -> None:
        """Begin a read-only transaction, each of whose queries the server ends after so many seconds."""

    @abstractmethod
    def _results(self, sql: str) -> Results:
        """Run a query."""

    @abstractmethod
    def _stop(self) -> None:
        """End the running query. Never raises."""

    @abstractmethod
    def _abort(self) -> None:
        """Abort a transfer that `_stop` does not end, such as a row of a gigabyte, with its session. Never raises."""

    @abstractmethod
    def _kind(self, error: Exception) -> Failure | type[BackendError]:
        """What an error means: a failure of the query, or the loss of the database."""

    @abstractmethod
    def _message(self, error: Exception) -> str:
        """The server's message, without secrets."""

    def _stream(self, sql: str, limits: QueryLimits) -> Rows:
        """Run the SQL in a read-only transaction within the limits."""
        started = time.monotonic()
        try:
            self._begin(limits.seconds)
        except self._error as error:
            raise self._lost(error) from error
        try:
            with self._stopped_after(limits.seconds + _GRACE), self._results(sql) as (columns, rows):
                return collect(columns, rows, limits, started)
        except (self._error, MemoryError, ValueError) as error:
            kind = Failure.MEMORY if isinstance(error, MemoryError) else self._kind(error)
            if time.monotonic() - started > limits.seconds or kind is Failure.DEADLINE:
                raise late(limits.seconds) from None
            if not isinstance(kind, Failure):
                raise self._lost(error, kind) from None
            raise failed(kind, self._message(error)) from None
        finally:
            self.used = time.monotonic() - started
            with contextlib.suppress(self._error):
                self._execute("ROLLBACK")

    @contextlib.contextmanager
    def _stopped_after(self, seconds: float) -> Iterator[None]:
        """Stop the block's query in another thread after ``seconds``, and abort it if that does not help."""

        def end() -> None:
            self._stop()
            if not watcher.finished.wait(_PATIENCE):
                self._abort()

        watcher = threading.Timer(seconds, end)
        watcher.daemon = True
        try:
            watcher.start()
        except RuntimeError as error:  # earlier queries left no memory for its stack
            raise MemoryError(str(error)) from error
        try:
            yield
        finally:
            watcher.cancel()
            watcher.join()  # so that a late stop cannot hit the next query

    def _sample(self, sql: str, rows: int) -> Sequence[Row]:
        limits = QueryLimits(_SAMPLE_SECONDS, max(rows, self._limits.rows), _SAMPLE_BYTES, self._limits.memory_mb)
        try:
            return self._stream(sql, limits).rows
        except QueryError as error:
            raise BackendError(f"A table of {self._name} cannot be read: {error}") from error

    def _execute(self, sql: str, *values: Any) -> list[Row]:
        """Run one of our own statements; raises the driver's error."""
        with self._driver.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def _lost(self, error: BaseException, kind: type[BackendError] = BackendError) -> BackendError:
        cause = error.orig if isinstance(error, exc.DBAPIError) else error
        return kind(f"The database {self._name} does not answer any more: {_first_line(cause)}")

    def _read_schema(self) -> Schema:
        try:
            return Schema(tuple(self._tables()))
        except (exc.SQLAlchemyError, self._error) as error:
            raise self._lost(error) from None

    def _tables(self) -> Iterator[Table]:
        """Tables and views of the default schema."""
        listed = self._execute(self._relations)
        names = {name for name, _ in listed}
        inspector = sqlalchemy.inspect(self._connection)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", exc.SAWarning)  # types that SQLAlchemy does not know do not matter
            found: tuple[Mapping[tuple[str | None, str], Any], ...] = (
                inspector.get_multi_columns(kind=ObjectKind.ANY),
                inspector.get_multi_pk_constraint(),
                inspector.get_multi_foreign_keys(),
                inspector.get_multi_indexes(),
                inspector.get_multi_check_constraints(),
            )
        columns, keys, foreign, indexes, checks = ({name: value for (_, name), value in each.items()} for each in found)
        for name, view in listed:
            shown = tuple(
                Column(column["name"], _type(column["type"], self._connection.dialect), bool(column["nullable"]))
                for column in columns.get(name, ())
            )
            if view:
                yield Table(name, shown, view=True)
                continue
            key = tuple((keys.get(name) or {}).get("constrained_columns") or ())
            references = tuple(
                ForeignKey(tuple(item["constrained_columns"]), item["referred_table"], tuple(item["referred_columns"]))
                for item in foreign.get(name, ())
                if item["referred_schema"] is None and item["referred_table"] in names
            )
            unique = (tuple(item["column_names"]) for item in indexes.get(name, ()) if _is_unique(item))
            conditions = (condition(item["sqltext"], self.dialect) for item in checks.get(name, ()))
            others = tuple(item for item in unique if item != key)
            yield Table(name, shown, key, references, others, checks=tuple(filter(None, conditions)))


def _first_line(error: BaseException | None) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _is_unique(index: Mapping[str, Any]) -> bool:
    """Whether it is UNIQUE, over whole columns and all rows."""
    partial = any(option.endswith(("_where", "_length")) for option in index.get("dialect_options", {}))
    return index["unique"] and None not in index["column_names"] and not index.get("expressions") and not partial


def condition(sql: str, dialect: str) -> str:
    """The condition of a CHECK as SQL of SQLite; empty if sqlglot cannot read it."""
    try:
        return parse_one(sql, dialect).transform(_listed).sql("sqlite", unsupported_level=ErrorLevel.IGNORE)
    except SqlglotError:
        return ""


def _listed(node: exp.Expr) -> exp.Expr:
    """``x IN (…)`` for PostgreSQL's ``x = ANY (ARRAY[…])``; literals without MySQL's character sets."""
    if isinstance(node, exp.Introducer):
        text: exp.Expr = node.expression
        return text
    array = (
        node.expression.find(exp.Array) if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any) else None
    )
    return exp.In(this=node.this, expressions=array.expressions) if array is not None else node


def _type(kind: TypeEngine[Any], dialect: sqlalchemy.Dialect) -> str:
    if isinstance(kind, NullType):
        return ""
    try:
        return kind.compile(dialect).partition(" COLLATE ")[0].partition(" CHARACTER SET ")[0]
    except exc.CompileError:
        return type(kind).__name__.upper()
