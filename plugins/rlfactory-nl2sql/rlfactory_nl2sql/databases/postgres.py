"""PostgreSQL, through psycopg.

Guards: the role is no superuser, cannot access the server's files, and cannot become a role that can (checked when
connecting). The transaction is read-only and always rolled back. The extended protocol takes a single statement.
``statement_timeout`` limits the time, and a cancel request if that fails. ``work_mem`` limits memory, and
``temp_file_limit`` the disk if the role may set it. Functions that access anything but the data, such as those that end
another session, are refused by name before the server sees the query. Other sessions cannot see a gold query
(`PostgresSession`), although it runs as the same account.

A varied copy is a session with temporary tables and views of the same names, in ``pg_temp``, which precedes all schemas
in the search path. A query on it may name only the schema's tables, without their schemas, so that it cannot read the
original data. Views may still read tables outside the search path, which are not varied.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterable, Sequence
from graphlib import TopologicalSorter
from itertools import chain
from typing import Any

import psycopg
import sqlalchemy
from psycopg import DataError, errors
from psycopg.adapt import Loader
from psycopg.types.datetime import DateLoader, IntervalLoader, TimestampLoader, TimestamptzLoader
from psycopg.types.string import TextLoader
from sqlalchemy import exc

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_nl2sql.connection import (
    Connection,
    Failure,
    QueryError,
    QueryLimits,
    Row,
    Rows,
    SessionLostError,
    TableRows,
)
from rlfactory_nl2sql.databases.limiting import collect, late, stopped_after
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.databases.server import ServerDatabase, connect, make_engine
from rlfactory_nl2sql.databases.statement_guard import Forbidden, check, check_text, named_tables, without_schema
from rlfactory_nl2sql.schema import Table

_FORBIDDEN = Forbidden(
    functions=frozenset(
        {
            "adminpack*", "connectby", "crosstab*", "current_setting", "cursor_to_xml*", "database_to_xml*", "dblink*",
            "inet_client_*", "inet_server_*", "lo_*", "loread", "lowrite", "nextval", "pg_advisory_*", "pg_backup_*",
            "pg_cancel_backend", "pg_conf*", "pg_create_*", "pg_current_logfile", "pg_drop_*", "pg_export_snapshot",
            "pg_file_*", "pg_hba*", "pg_import_*", "pg_log_*", "pg_logical_*", "pg_ls_*", "pg_notify", "pg_promote",
            "pg_read_*", "pg_reload_conf", "pg_replication_*", "pg_rotate_logfile", "pg_show_*", "pg_start_backup",
            "pg_stat_*", "pg_stop_backup", "pg_switch_wal", "pg_terminate_backend", "pg_try_advisory_*",
            "query_to_xml*", "schema_to_xml*", "set_config", "setval", "table_to_xml*", "ts_rewrite", "ts_stat",
            "xpath_table",
        }
    ),
    # Some of these show queries of other sessions, for example the gold query while it runs.
    relations=frozenset(
        {
            "pg_authid", "pg_config", "pg_cursors", "pg_file_settings", "pg_hba_file_rules", "pg_ident_file_mappings",
            "pg_largeobject*", "pg_prepared_*", "pg_settings", "pg_shadow", "pg_stat_*", "pg_statio_*", "pg_stats*",
            "pg_user_mapping*",
        }
    ),
)  # fmt: skip

_GRACE = 0.25  # seconds to wait for the server's own timeout before a cancel request
_CANCEL_SECONDS = 1.0
_LOCK_SECONDS = 2  # time to wait for a program that changes a table's definition

_TOO_LARGE = (
    MemoryError,
    errors.OutOfMemory,
    errors.ConfigurationLimitExceeded,
    errors.DiskFull,
    errors.ProgramLimitExceeded,
)
_LOST = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.LockNotAvailable)

_RELATIONS = """
    SELECT relname, relkind IN ('v', 'm') FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relkind IN ('r', 'p', 'f', 'v', 'm') AND NOT relispartition AND pg_table_is_visible(pg_class.oid)
        AND nspname NOT IN ('pg_catalog', 'information_schema') AND nspname NOT LIKE 'pg\\_t%'
        AND has_table_privilege(pg_class.oid, 'SELECT')
    ORDER BY pg_class.oid
"""
# Loaded as text: otherwise psycopg makes objects of its own types, or loses differences between values.
_AS_TEXT = (
    "json", "jsonb", "inet", "cidr", "int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange",
    "int4multirange", "int8multirange", "nummultirange", "tsmultirange", "tstzmultirange", "datemultirange",
)  # fmt: skip
_CONNECT_SECONDS = 10
_PRIVILEGED = """
    SELECT rolname FROM pg_roles WHERE pg_has_role(session_user, oid, 'MEMBER') AND (rolsuper OR rolname IN
        ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program'))
"""
_VIEWS = """
    SELECT DISTINCT made.relname, pg_get_viewdef(made.oid), read.relname
    FROM pg_class AS made JOIN pg_namespace ON pg_namespace.oid = made.relnamespace
    LEFT JOIN pg_rewrite ON ev_class = made.oid
    LEFT JOIN pg_depend ON classid = 'pg_rewrite'::regclass AND objid = pg_rewrite.oid
        AND refclassid = 'pg_class'::regclass AND refobjid <> made.oid
    LEFT JOIN pg_class AS read ON read.oid = refobjid
    WHERE made.relkind IN ('v', 'm') AND pg_table_is_visible(made.oid)
        AND nspname NOT IN ('pg_catalog', 'information_schema')
"""


class PostgresSession(ServerDatabase):
    """One session. See `connection.Connection`.

    Sessions of one account see the first bytes of each other's queries in ``pg_stat_activity``. As many spaces precede
    each query, so that a prediction never sees a gold query there, whatever the guard lets through.
    """

    dialect = "postgres"

    def __init__(self, connection: sqlalchemy.Connection, name: str, limits: QueryLimits) -> None:
        super().__init__(connection, name, limits)
        self._driver: psycopg.Connection[Row] = connection.connection.driver_connection  # type: ignore[assignment]
        load_plain_values(self._driver)
        for setting, value in {
            "DateStyle": "ISO",  # the format that psycopg reads; the order of day and month does not change
            "IntervalStyle": "postgres",
            "work_mem": f"{max(limits.memory_mb // 8, 1)}MB",
            "lock_timeout": f"{_LOCK_SECONDS}s",
            "max_parallel_workers_per_gather": "0",
            "synchronize_seqscans": "off",  # otherwise a table's rows come in a different order each time
            "jit": "off",
        }.items():
            self._driver.execute(f"SET {setting} = '{value}'".encode())
        ((shown,),) = self._driver.execute(
            b"SELECT setting::int FROM pg_settings WHERE name = 'track_activity_query_size'"
        )
        self._hidden = " " * shown
        with contextlib.suppress(errors.InsufficientPrivilege):
            self._driver.execute(f"SET temp_file_limit = '{limits.memory_mb}MB'".encode())

    def _admitted(self, sql: str) -> str:
        check_text(sql, "postgres", _FORBIDDEN)
        return sql

    def _stream(self, sql: str, limits: QueryLimits) -> Rows:
        sql = self._hidden + sql
        started = time.monotonic()
        milliseconds = max(int(limits.seconds * 1000), 1)
        try:
            self._driver.execute(f"BEGIN READ ONLY; SET LOCAL statement_timeout = {milliseconds}".encode())
        except psycopg.Error as error:
            raise self._lost(error) from error
        try:
            with (
                stopped_after(limits.seconds + _GRACE, self._cancel, self._abort),
                self._driver.cursor() as cursor,
                contextlib.closing(cursor.stream(sql.encode())) as rows,  # type: ignore[type-var]
            ):
                first = next(rows, None)
                if first is None:
                    return Rows(self._columns(sql), ())
                columns = tuple(column.name for column in cursor.description or ())
                return collect(columns, chain([first], rows), limits, started)
        except (psycopg.Error, MemoryError, ValueError) as error:
            if time.monotonic() - started > limits.seconds:
                raise late(limits) from None
            raise self._failure(error) from None
        finally:
            if not self._driver.closed:
                with contextlib.suppress(psycopg.Error):
                    self._driver.execute(b"ROLLBACK")

    def _columns(self, sql: str) -> tuple[str, ...]:
        """The column names of a query without rows, for which psycopg's stream has none."""
        self._driver.pgconn.prepare(b"", sql.encode())
        described = self._driver.pgconn.describe_prepared(b"")
        names = [described.fname(place) or b"" for place in range(described.nfields)]
        return tuple(name.decode() for name in names)

    def _cancel(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._driver.cancel_safe(timeout=_CANCEL_SECONDS)

    def _abort(self) -> None:
        """Abort a transfer that a cancel request does not end, such as a row of a gigabyte; the session is lost."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._driver.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def _relations(self) -> list[tuple[str, bool]]:
        return [(str(name), bool(view)) for name, view in self._execute(_RELATIONS)]

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, _TOO_LARGE) or "memory" in error_message(error):
            return QueryError(Failure.MEMORY, "The query needs more memory than it may use.")
        if self._driver.closed:
            return self._lost(error, SessionLostError)
        if isinstance(error, _LOST):
            return self._lost(error)
        if isinstance(error, errors.ReadOnlySqlTransaction | errors.InsufficientPrivilege):
            return QueryError(Failure.REFUSED, f"Refused: {error_message(error)}. Only a query that reads is allowed.")
        return QueryError(Failure.ERROR, error_message(error))


def error_message(error: Exception) -> str:
    """PostgreSQL's message and hint, without the position in the text."""
    if not isinstance(error, psycopg.Error) or error.diag.message_primary is None:
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    hint = error.diag.message_hint
    return error.diag.message_primary + (f" ({hint})" if hint else "")


def load_plain_values(connection: psycopg.Connection[Any]) -> None:
    """Make the connection load JSON, addresses, ranges, and dates unknown to Python (infinity, 4000 BC) as text."""
    for name in _AS_TEXT:
        connection.adapters.register_loader(name, TextLoader)
    connection.adapters.register_loader("date", _Date)
    connection.adapters.register_loader("timestamp", _Timestamp)
    connection.adapters.register_loader("timestamptz", _Timestamptz)
    connection.adapters.register_loader("interval", _Interval)


class _OrText(Loader):
    def load(self, data: Any) -> Any:
        try:
            return super().load(data)  # type: ignore[safe-super] # of the psycopg class that follows in each class below
        except DataError:
            return bytes(data).decode()


class _Date(_OrText, DateLoader):
    pass


class _Timestamp(_OrText, TimestampLoader):
    pass


class _Timestamptz(_OrText, TimestamptzLoader):
    pass


class _Interval(_OrText, IntervalLoader):
    pass


class PostgresInstance(PostgresSession):
    """A session whose temporary tables and views hide those of the original database."""

    def __init__(
        self, original: PostgresSession, connection: sqlalchemy.Connection, name: str, path: Sequence[str]
    ) -> None:
        super().__init__(connection, name, original._limits)
        self._original = original
        self._schema = original.schema()
        self._path = path

    def build(self, data: TableRows, views: Iterable[tuple[str, str]]) -> None:
        """Create and fill the tables, and create the views; raises psycopg's errors."""
        tables = [table for table in self.schema().tables if not table.view]
        path = ", ".join(["pg_temp", *map(self._quoted, self._path)])
        made = [f"SET search_path = {path}", "BEGIN READ WRITE", *map(self._definition, tables)]
        self._driver.execute("; ".join(made).encode())
        with self._driver.cursor() as cursor:
            for table in tables:
                if rows := data.get(table.name):
                    names = ", ".join(self._quoted(column.name) for column in table.columns)
                    with cursor.copy(f"COPY {self._quoted(table.name)} ({names}) FROM STDIN".encode()) as copy:
                        for row in rows:
                            copy.write_row(row)
        for name, sql in views:
            self._driver.execute(f"CREATE TEMPORARY VIEW {self._quoted(name)} AS {sql}".encode())
        self._driver.execute(b"COMMIT")

    def instance(self, data: TableRows) -> Connection:
        return self._original.instance(data)

    def _admitted(self, sql: str) -> str:
        query = check(sql, "postgres", _FORBIDDEN)
        schemas = frozenset(item.lower() for item in self._path)
        known = {table.name for table in self.schema().tables}
        for table in named_tables(query.tree):
            name = table.name if table.this.args.get("quoted") else table.name.lower()
            if name not in known or (table.db and table.db.lower() not in schemas):
                raise QueryError(Failure.ERROR, f'relation "{table.name}" is not a table of this database')
        return without_schema(query, schemas)

    def _definition(self, table: Table) -> str:
        name = self._quoted(table.name)
        return f"CREATE TEMPORARY TABLE {name} ({', '.join([f'LIKE {name}', *self._keys(table)])})"


class PostgresConnection(PostgresSession):
    """A database on a server, given by ``postgresql://account@host/name``.

    Raises:
        BackendError: the server does not answer.
        UsageError: the account has too many privileges; the message has the SQL for a suitable account.
    """

    def __init__(self, ref: DatabaseRef, limits: QueryLimits) -> None:
        engine = make_engine(
            ref, "postgresql+psycopg", {"connect_timeout": _CONNECT_SECONDS, "client_encoding": "utf8"},
            use_native_hstore=False,
        )  # fmt: skip
        connection = connect(engine, ref.location)
        try:
            super().__init__(connection, ref.location, limits)
            privileges = [str(name) for (name,) in self._execute(_PRIVILEGED)]
        except (psycopg.Error, exc.DBAPIError) as error:
            connection.close()
            raise BackendError(f"The database {ref.location} cannot be used: {error}") from None
        if privileges:
            connection.close()
            raise UsageError(_other_role(ref, str(engine.url.database), privileges))

    def instance(self, data: TableRows) -> PostgresInstance:
        """Temporary tables in a separate session, with primary keys, UNIQUE and NOT NULL, but without CHECK.

        Raises:
            BackendError: they cannot be created, usually because the role lacks TEMPORARY on the database.
        """
        name = f"a varied copy of {self._name}"
        path = [str(item) for (item,) in self._execute("SELECT unnest(current_schemas(false))")]
        made = PostgresInstance(self, connect(self._connection.engine, name), name, path)
        try:
            made.build(data, self._views())
        except psycopg.Error as error:
            made.close()
            if isinstance(error, errors.InsufficientPrivilege):
                raise BackendError(
                    f"{name} cannot be made: {error_message(error)}. Allow it: GRANT TEMPORARY ON DATABASE "
                    f"{self._quoted(str(self._connection.engine.url.database))} TO "
                    f"{self._quoted(str(self._connection.engine.url.username))};"
                ) from error
            raise BackendError(f"{name} cannot be made: {error_message(error)}") from error
        return made

    def _views(self) -> list[tuple[str, str]]:
        """The name and definition of each view, after the views that it reads."""
        known = {table.name for table in self.schema().tables if table.view}
        definitions: dict[str, str] = {}
        reads: dict[str, set[str]] = {}
        for name, sql, read in self._driver.execute(_VIEWS.encode()):
            if name in known:
                definitions[name] = sql
                reads.setdefault(name, set()).update({read} & known)
        return [(name, definitions[name]) for name in TopologicalSorter(reads).static_order()]


def _other_role(ref: DatabaseRef, database: str, privileges: Sequence[str]) -> str:
    return (
        f"The account of {ref.location} may do more than read: it is, or may become, {', '.join(privileges)}. A "
        "model's SQL would run with these rights. Make an account that only reads, and use that:\n"
        "  CREATE ROLE sql_reader LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD '...';\n"
        f'  GRANT CONNECT, TEMPORARY ON DATABASE "{database}" TO sql_reader;\n'
        "  GRANT pg_read_all_data TO sql_reader; -- or: GRANT SELECT ON ALL TABLES IN SCHEMA public TO sql_reader;\n"
        "  ALTER ROLE sql_reader SET default_transaction_read_only = on;"
    )
