"""One session with MySQL or MariaDB: queries within limits, the schema, and the server's errors."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pymysql  # type: ignore[import-untyped]
import sqlalchemy
from pymysql.constants import CR, ER  # type: ignore[import-untyped]
from pymysql.cursors import SSCursor  # type: ignore[import-untyped]
from sqlalchemy import exc
from sqlglot import exp

from rlfactory_core.errors import BackendError
from rlfactory_nl2sql.checks.parsing import Query
from rlfactory_nl2sql.connection import Failure, QueryError, QueryLimits, Rows, SessionLostError
from rlfactory_nl2sql.databases.limiting import collect, late, stopped_after
from rlfactory_nl2sql.databases.server import ServerDatabase, connect
from rlfactory_nl2sql.databases.statement_guard import Forbidden, check, named_tables

COPY = re.compile(r"rlfactory_[0-9a-f]{16}")
"""Names of varied copies."""

_GRACE = 0.25  # seconds to wait for the server's own timeout before KILL QUERY
_LOCK_SECONDS = 2  # time to wait for a program that writes
_FORBIDDEN = Forbidden(
    functions=frozenset(
        {
            "benchmark", "get_lock", "is_free_lock", "is_used_lock", "lastval", "load_file", "master_gtid_wait",
            "master_pos_wait", "nextval", "release_all_locks", "release_lock", "setval", "sleep", "source_pos_wait",
            "sys_eval", "sys_exec", "wait_*",
        }
    )
)  # fmt: skip
# The tables of the schema. Others there show other sessions, for example the gold query while it runs.
_INFORMATION = frozenset(
    {
        "columns", "key_column_usage", "referential_constraints", "schemata", "statistics", "table_constraints",
        "tables", "views",
    }
)  # fmt: skip
# With these the server reads quotes differently from sqlglot, which checks the text first.
_OTHER_QUOTES = frozenset(
    {"ANSI", "ANSI_QUOTES", "DB2", "MAXDB", "MSSQL", "NO_BACKSLASH_ESCAPES", "ORACLE", "POSTGRESQL"}
)

# Error codes, by number where PyMySQL has no name for them.
DENIED = {1792, 1044, 1142, 1143, 1227, 1290, 1370}
"""It would write in a read-only transaction, or the account lacks the privilege."""

_STOPPED = {ER.QUERY_INTERRUPTED, 1969, 3024}  # killed; max_statement_time; max_execution_time
_TOO_LARGE = {ER.OUTOFMEMORY, ER.OUT_OF_SORTMEMORY, ER.OUT_OF_RESOURCES, ER.DISK_FULL, ER.RECORD_FILE_FULL}
_GONE = {0, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, CR.CR_SERVER_LOST_EXTENDED, ER.SERVER_SHUTDOWN, 1927}
_LOCKED = {ER.LOCK_WAIT_TIMEOUT}


class MysqlSession(ServerDatabase):
    """One session. See `connection.Connection`."""

    dialect = "mysql"
    _quote = "`"

    def __init__(self, connection: sqlalchemy.Connection, name: str, limits: QueryLimits, database: str) -> None:
        super().__init__(connection, name, limits)
        self._database = database  # the original database's name, also in a copy
        self._driver: Any = connection.connection.driver_connection
        self._seconds = 0.0
        ((modes, version),) = self._execute("SELECT @@sql_mode, version()")
        self._mariadb = "MariaDB" in version
        self._modes = ",".join(mode for mode in modes.split(",") if mode not in _OTHER_QUOTES)
        self._run(f"SET SESSION sql_mode = '{self._modes}', lock_wait_timeout = {_LOCK_SECONDS}")
        self._run(f"SET SESSION innodb_lock_wait_timeout = {_LOCK_SECONDS}")

    def _admitted(self, sql: str) -> str:
        return self._checked(sql).sql

    def _checked(self, sql: str) -> Query:
        query = check(sql, "mysql", _FORBIDDEN)
        if query.tree.find(exp.Parameter, exp.SessionParameter):
            raise QueryError(Failure.REFUSED, "Refused: variables (@name, @@name) cannot be used here.")
        for table in named_tables(query.tree):
            database = table.db.lower()
            if database == "information_schema" and table.name.lower() in _INFORMATION:
                continue
            if database and database != self._database.lower():
                raise QueryError(Failure.REFUSED, f"Refused: {table.db}.{table.name} is not part of this database.")
        return query

    def _stream(self, sql: str, limits: QueryLimits) -> Rows:
        started = time.monotonic()
        try:
            self._limit_time(limits.seconds)
            self._run("START TRANSACTION READ ONLY")
        except pymysql.Error as error:
            raise self._lost(error) from error
        try:
            with stopped_after(limits.seconds + _GRACE, self._kill, self._abort), self._cursor() as cursor:
                cursor.execute(sql)
                columns = tuple(column[0] for column in cursor.description or ())
                return collect(columns, cursor, limits, started)
        except (pymysql.Error, MemoryError, ValueError) as error:
            if time.monotonic() - started > limits.seconds or error_code(error) in _STOPPED:
                raise late(limits) from None
            raise self._failure(error) from None
        finally:
            with contextlib.suppress(pymysql.Error):
                self._run("ROLLBACK")

    @contextlib.contextmanager
    def _cursor(self) -> Iterator[SSCursor]:
        """An unbuffered cursor. If a limit ends the reading, the server is told to stop, and the rest is read."""
        cursor = self._driver.cursor(SSCursor)
        try:
            yield cursor
        except QueryError:
            self._kill()
            raise
        finally:
            try:
                cursor.close()
            except pymysql.Error:
                pass
            except (
                AttributeError
            ):  # PyMySQL's own error if the session was aborted; it would try again when both are freed
                cursor._result.unbuffered_active = False
                cursor.connection = None

    def _run(self, sql: str) -> None:
        with self._driver.cursor() as cursor:
            cursor.execute(sql)

    def _limit_time(self, seconds: float) -> None:
        if seconds != self._seconds:
            value = (
                f"max_statement_time = {seconds}" if self._mariadb else f"max_execution_time = {int(seconds * 1000)}"
            )
            self._run(f"SET SESSION {value}")
            self._seconds = seconds

    def _kill(self) -> None:
        silent = contextlib.suppress(exc.SQLAlchemyError, BackendError)
        with silent, connect(self._connection.engine, self._name) as other:
            other.exec_driver_sql(f"KILL QUERY {self._driver.thread_id()}")

    def _abort(self) -> None:
        """Abort a transfer from a server that does not answer; the session is lost."""
        with contextlib.suppress(OSError, AttributeError):
            self._driver._sock.shutdown(socket.SHUT_RDWR)

    def _relations(self) -> list[tuple[str, bool]]:
        listed = self._execute(
            "SELECT table_name, table_type LIKE '%VIEW' FROM information_schema.tables "
            "WHERE table_schema = DATABASE() AND table_type <> 'SEQUENCE' ORDER BY 2, create_time, 1"
        )
        return [(str(name), bool(view)) for name, view in listed]

    def _failure(self, error: Exception) -> Exception:
        code = error_code(error)
        if isinstance(error, MemoryError) or code in _TOO_LARGE:
            return QueryError(Failure.MEMORY, "The query needs more memory than it may use.")
        if code in _GONE or not self._driver.open:
            return self._lost(error, SessionLostError)
        if code in _LOCKED:
            return self._lost(error)
        if code in DENIED:
            return QueryError(Failure.REFUSED, f"Refused: {error_message(error)}. Only a query that reads is allowed.")
        return QueryError(Failure.ERROR, COPY.sub(self._database, error_message(error)))


def error_code(error: BaseException) -> int | None:
    cause = error.orig if isinstance(error, exc.DBAPIError) else error
    code = cause.args[0] if isinstance(cause, pymysql.Error) and cause.args else None
    return code if isinstance(code, int) else None


def error_message(error: BaseException) -> str:
    """The server's message, without the account and its address."""
    cause = error.orig if isinstance(error, exc.DBAPIError) else error
    said = str(cause.args[-1]) if cause is not None and cause.args else type(cause).__name__
    return re.sub(r" (to|for) user '[^']*'@'[^']*'", "", said)
