"""PostgreSQL, through psycopg.

Guards: the role is no superuser, cannot access the server's files, and cannot become a role that can (checked when
connecting). The transaction is read-only and always rolled back. The extended protocol takes a single statement.
``statement_timeout`` limits the time, and a cancel request if that fails. ``work_mem`` limits memory, and
``temp_file_limit`` the disk if the role may set it. Functions that access anything but the data, such as those that end
another session, are refused by name before the server sees the query. Other sessions cannot see a gold query
(`PostgresDatabase`), although it runs as the same account.

A varied copy is a session with temporary tables and views of the same names, in ``pg_temp``, which precedes all schemas
in the search path. A query on it may name only the schema's tables, without their schemas, so that it cannot read the
original data. Views may still read tables outside the search path, which are not varied.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from graphlib import TopologicalSorter
from itertools import chain
from typing import Any

import psycopg
from psycopg import DataError, errors
from psycopg.adapt import Loader
from psycopg.types.datetime import DateLoader, IntervalLoader, TimestampLoader, TimestamptzLoader
from psycopg.types.string import TextLoader

from rlfactory_core.errors import BackendError
from rlfactory_nl2sql.connection import Failure, QueryError, QueryLimits, Row, SessionLostError, TableRows
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.databases.server import ServerDatabase
from rlfactory_nl2sql.databases.statement_guard import Forbidden, check, check_text, without_schema
from rlfactory_nl2sql.schema import Table

_FORBIDDEN = Forbidden(
    functions="""
        adminpack* connectby crosstab* current_setting cursor_to_xml* database_to_xml* dblink* inet_client_*
        inet_server_* lo_* loread lowrite nextval pg_advisory_* pg_backup_* pg_cancel_backend pg_conf* pg_create_*
        pg_current_logfile pg_drop_* pg_export_snapshot pg_file_* pg_hba* pg_import_* pg_log_* pg_logical_* pg_ls_*
        pg_notify pg_promote pg_read_* pg_reload_conf pg_replication_* pg_rotate_logfile pg_show_* pg_start_backup
        pg_stat_* pg_stop_backup pg_switch_wal pg_terminate_backend pg_try_advisory_* query_to_xml* schema_to_xml*
        set_config setval table_to_xml* ts_rewrite ts_stat xpath_table""",
    # Some of these show queries of other sessions, for example the gold query while it runs.
    relations="""
        pg_authid pg_config pg_cursors pg_file_settings pg_hba_file_rules pg_ident_file_mappings pg_largeobject*
        pg_prepared_* pg_settings pg_shadow pg_stat_* pg_statio_* pg_stats* pg_user_mapping*""",
)

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
_AS_TEXT = ("json", "jsonb", "inet", "cidr", *(each.name for each in psycopg.adapters.types if "range" in each.name))
_DATES = ("date", "timestamp", "timestamptz", "interval")
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


class PostgresDatabase(ServerDatabase):
    """One session. See `server.ServerDatabase`.

    Sessions of one account see the first bytes of each other's queries in ``pg_stat_activity``. As many spaces precede
    each query, so that a prediction never sees a gold query there, whatever the guard lets through.
    """

    dialect = "postgres"
    _error = psycopg.Error
    _relations = _RELATIONS
    _account = (
        "  CREATE ROLE sql_reader LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD '...';\n"
        '  GRANT CONNECT, TEMPORARY ON DATABASE "{0}" TO sql_reader;\n'
        "  GRANT pg_read_all_data TO sql_reader; -- or: GRANT SELECT ON ALL TABLES IN SCHEMA public TO sql_reader;\n"
        "  ALTER ROLE sql_reader SET default_transaction_read_only = on;"
    )

    def _set_up(self) -> None:
        for kind, loader in _LOADERS.items():
            self._driver.adapters.register_loader(kind, loader)
        memory_mb = self._limits.memory_mb
        for setting, value in {
            "DateStyle": "ISO",  # the format that psycopg reads; the order of day and month does not change
            "IntervalStyle": "postgres",
            "work_mem": f"{max(memory_mb // 8, 1)}MB",
            "lock_timeout": f"{_LOCK_SECONDS}s",
            "max_parallel_workers_per_gather": "0",
            "synchronize_seqscans": "off",  # otherwise a table's rows come in a different order each time
            "jit": "off",
        }.items():
            self._execute(f"SET {setting} = '{value}'")
        ((shown,),) = self._execute("SELECT setting::int FROM pg_settings WHERE name = 'track_activity_query_size'")
        self._hidden = " " * shown
        self._path = [str(item) for (item,) in self._execute("SELECT unnest(current_schemas(false))")]
        with contextlib.suppress(errors.InsufficientPrivilege):
            self._execute(f"SET temp_file_limit = '{memory_mb}MB'")

    def _excess(self) -> str:
        roles = [str(name) for (name,) in self._execute(_PRIVILEGED)]
        return f"it is, or may become, {', '.join(roles)}" if roles else ""

    def _build(self, original: PostgresDatabase, tables: Sequence[Table], data: TableRows) -> None:
        path = ", ".join(["pg_temp", *map(self._quoted, self._path)])
        made = (
            f"CREATE TEMPORARY TABLE {name} ({', '.join([f'LIKE {name}', *self._keys(table)])})"
            for table in tables
            for name in [self._quoted(table.name)]
        )
        self._execute("; ".join([f"SET search_path = {path}", "BEGIN READ WRITE", *made]))
        with self._driver.cursor() as cursor:
            for table in tables:
                if rows := data.get(table.name):
                    names = ", ".join(self._quoted(column.name) for column in table.columns)
                    with cursor.copy(f"COPY {self._quoted(table.name)} ({names}) FROM STDIN") as copy:
                        for row in rows:
                            copy.write_row(row)
        for name, sql in original._views():
            self._execute(f"CREATE TEMPORARY VIEW {self._quoted(name)} AS {sql}")
        self._execute("COMMIT")

    def _views(self) -> Iterable[tuple[str, str]]:
        """The name and definition of each view, after the views that it reads."""
        known = {table.name for table in self.schema().tables if table.view}
        found = [row for row in self._execute(_VIEWS) if row[0] in known]
        definitions = {name: sql for name, sql, _ in found}
        order = TopologicalSorter[str]()
        for name, _, read in found:
            order.add(name, *({read} & known))
        return [(name, definitions[name]) for name in order.static_order()]

    def _admitted(self, sql: str) -> str:
        if self._original is None:
            check_text(sql, "postgres", _FORBIDDEN)
            return sql
        query = check(sql, "postgres", _FORBIDDEN)
        schemas = frozenset(item.lower() for item in self._path)
        known = {table.name for table in self.schema().tables}
        for table in query.named_tables():
            name = table.name if table.this.args.get("quoted") else table.name.lower()
            if name not in known or (table.db and table.db.lower() not in schemas):
                raise QueryError(Failure.ERROR, f'relation "{table.name}" is not a table of this database')
        return without_schema(query, schemas)

    def _begin(self, seconds: float) -> None:
        self._execute(f"BEGIN READ ONLY; SET LOCAL statement_timeout = {max(int(seconds * 1000), 1)}")

    @contextlib.contextmanager
    def _results(self, sql: str) -> Iterator[tuple[tuple[str, ...], Iterable[Row]]]:
        hidden = (self._hidden + sql).encode()
        with self._driver.cursor() as cursor, contextlib.closing(cursor.stream(hidden)) as rows:
            first = next(rows, None)
            if first is None:
                yield self._columns(hidden), ()
            else:
                yield tuple(column.name for column in cursor.description), chain([first], rows)

    def _columns(self, sql: bytes) -> tuple[str, ...]:
        """The column names of a query without rows, for which psycopg's stream has none."""
        self._driver.pgconn.prepare(b"", sql)
        described = self._driver.pgconn.describe_prepared(b"")
        return tuple((described.fname(place) or b"").decode() for place in range(described.nfields))

    def _stop(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._driver.cancel_safe(timeout=_CANCEL_SECONDS)

    def _abort(self) -> None:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._driver.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def _kind(self, error: Exception) -> Failure | type[BackendError]:
        if isinstance(error, _TOO_LARGE) or "memory" in self._message(error):
            return Failure.MEMORY
        if self._driver.closed:
            return SessionLostError
        if isinstance(error, _LOST):
            return BackendError
        refused = isinstance(error, errors.ReadOnlySqlTransaction | errors.InsufficientPrivilege)
        return Failure.REFUSED if refused else Failure.ERROR

    def _message(self, error: Exception) -> str:
        """PostgreSQL's message and hint, without the position in the text."""
        if not isinstance(error, psycopg.Error) or error.diag.message_primary is None:
            return (str(error).strip().splitlines() or [type(error).__name__])[0]
        hint = error.diag.message_hint
        return error.diag.message_primary + (f" ({hint})" if hint else "")


def open_database(ref: DatabaseRef, limits: QueryLimits) -> PostgresDatabase:
    return PostgresDatabase.open(
        ref, limits, "postgresql+psycopg", {"client_encoding": "utf8"}, use_native_hstore=False
    )


class _OrText(Loader):
    """A loader of dates that loads those unknown to Python (infinity, 4000 BC) as text."""

    def load(self, data: Any) -> Any:
        try:
            return super().load(data)  # type: ignore[safe-super] # of the psycopg class that follows it below
        except DataError:
            return bytes(data).decode()


_LOADERS: dict[str, type[Loader]] = dict.fromkeys(_AS_TEXT, TextLoader)
for _kind, _loader in zip(_DATES, (DateLoader, TimestampLoader, TimestamptzLoader, IntervalLoader), strict=True):
    _LOADERS[_kind] = type(_kind, (_OrText, _loader), {})
