"""One session with PostgreSQL: queries within limits, the schema, and the server's errors."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from itertools import chain
from typing import Any

import psycopg
import sqlalchemy
from psycopg import Connection, DataError, errors
from psycopg.adapt import Loader
from psycopg.types.datetime import DateLoader, IntervalLoader, TimestampLoader, TimestamptzLoader
from psycopg.types.string import TextLoader

from rlfactory_nl2sql.connection import Failure, QueryError, QueryLimits, Row, Rows, SessionLostError
from rlfactory_nl2sql.databases.limiting import collect, late, stopped_after
from rlfactory_nl2sql.databases.server import ServerDatabase
from rlfactory_nl2sql.databases.statement_guard import Forbidden, check_text

FORBIDDEN = Forbidden(
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


class PostgresSession(ServerDatabase):
    """One session. See `connection.Connection`.

    Sessions of one account see each other's queries in ``pg_stat_activity``, which shows the first
    ``track_activity_query_size`` bytes. As many spaces precede each query, so that a prediction never sees a gold query
    there, whatever the guard lets through.
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
        check_text(sql, "postgres", FORBIDDEN)
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


# Loaded as text: otherwise psycopg makes objects of its own types, or loses differences between values.
_AS_TEXT = (
    "json", "jsonb", "inet", "cidr", "int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange",
    "int4multirange", "int8multirange", "nummultirange", "tsmultirange", "tstzmultirange", "datemultirange",
)  # fmt: skip


def load_plain_values(connection: Connection[Any]) -> None:
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
