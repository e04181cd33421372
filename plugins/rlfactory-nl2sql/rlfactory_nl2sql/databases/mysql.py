"""MySQL (8 and later) and MariaDB (10.5 and later), through PyMySQL.

Guards: the account may only read (checked when connecting). The session and its transaction are read-only and always
rolled back. A call runs one statement. ``max_execution_time`` (MySQL) or ``max_statement_time`` (MariaDB) limits the
time, and ``KILL QUERY`` over a second connection if that fails. Variables, other databases, functions that wait or
access other systems, and comments that the server executes are refused before the server sees the query.

A varied copy is a separate database ``rlfactory_…``, since MySQL reads a temporary table only once in a query and never
in a view. It is dropped when it is closed, or by the next process that makes one: its owner holds a lock of its name,
which the server releases when the owner's session ends.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pymysql  # type: ignore[import-untyped]
import sqlalchemy
from pymysql.constants import CR, ER, FIELD_TYPE  # type: ignore[import-untyped]
from pymysql.cursors import SSCursor  # type: ignore[import-untyped]
from sqlalchemy import exc
from sqlglot import exp

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_nl2sql.checks.parsing import Query
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, Rows, SessionLostError, TableRows
from rlfactory_nl2sql.databases.database import create_in_turn
from rlfactory_nl2sql.databases.limiting import collect, late, stopped_after
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.databases.server import ServerDatabase, connect, make_engine
from rlfactory_nl2sql.databases.statement_guard import Forbidden, check, named_tables, without_schema
from rlfactory_nl2sql.schema import Table

_COPY = re.compile(r"rlfactory_[0-9a-f]{16}")
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
COPIES = r"rlfactory\_%"
"""A pattern for LIKE and GRANT that matches all copies."""
_BUILD_MODE = "NO_AUTO_VALUE_ON_ZERO,STRICT_ALL_TABLES,ALLOW_INVALID_DATES"
_CONNECT_SECONDS = 10
_PRIVILEGES = frozenset({"ALL", "ALL PRIVILEGES", "FILE", "SUPER", "SHUTDOWN", "SYSTEM_USER", "SYSTEM_VARIABLES_ADMIN"})
_GLOBAL_GRANT = re.compile(r"GRANT (.+?) ON \*\.\* TO ")
_LITERAL_OR_NAME = r"'(?:[^'\\]|\\.|'')*'|{name}\."


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
        """An unbuffered cursor. If a limit ends the reading, the server is told to stop."""
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
            except AttributeError:  # PyMySQL's error if the session was aborted; it would try again when both are freed
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
        return QueryError(Failure.ERROR, _COPY.sub(self._database, error_message(error)))


def error_code(error: BaseException) -> int | None:
    cause = error.orig if isinstance(error, exc.DBAPIError) else error
    code = cause.args[0] if isinstance(cause, pymysql.Error) and cause.args else None
    return code if isinstance(code, int) else None


def error_message(error: BaseException) -> str:
    """The server's message, without the account and its address."""
    cause = error.orig if isinstance(error, exc.DBAPIError) else error
    said = str(cause.args[-1]) if cause is not None and cause.args else type(cause).__name__
    return re.sub(r" (to|for) user '[^']*'@'[^']*'", "", said)


class MysqlInstance(MysqlSession):
    """A separate database that exists while the connection is open."""

    def __init__(self, original: MysqlSession, connection: sqlalchemy.Connection, name: str) -> None:
        super().__init__(connection, name, original._limits, original._database)
        self._original = original
        self._schema = original.schema()
        self._copy = f"rlfactory_{secrets.token_hex(8)}"

    def build(self, data: TableRows, views: Sequence[tuple[str, str]]) -> None:
        """Create and fill the tables, and create the views; raises PyMySQL's errors."""
        self._run(f"SET SESSION sql_mode = '{_BUILD_MODE}'")
        ((charset, collation),) = self._execute("SELECT @@character_set_database, @@collation_database")
        self._execute("SELECT GET_LOCK(:name, 0)", name=self._copy)
        self._run(f"CREATE DATABASE {self._copy} CHARACTER SET {charset} COLLATE {collation}")
        tables = [table for table in self.schema().tables if not table.view]
        for table in tables:
            self._run(self._definition(table))
        self._run(f"USE {self._copy}")
        for table in tables:
            if rows := data.get(table.name):
                marks = ", ".join(["%s"] * len(table.columns))
                names = ", ".join(self._quoted(column.name).replace("%", "%%") for column in table.columns)
                place = self._quoted(table.name).replace("%", "%%")
                with self._driver.cursor() as cursor:
                    cursor.executemany(f"INSERT INTO {place} ({names}) VALUES ({marks})", rows)  # noqa: S608
        create_in_turn(views, self._create_view, pymysql.ProgrammingError)
        self._run(f"SET SESSION sql_mode = '{self._modes}'")

    def instance(self, data: TableRows) -> Connection:
        return self._original.instance(data)

    def close(self) -> None:
        with contextlib.suppress(pymysql.Error):
            self._limit_time(0)
            self._run(f"DROP DATABASE IF EXISTS {self._copy}")
        super().close()

    def drop_orphans(self) -> None:
        """Drop copies whose owners' sessions have ended."""
        for (name,) in self._execute("SHOW DATABASES LIKE :pattern", pattern=COPIES):
            if _COPY.fullmatch(name) and self._execute("SELECT GET_LOCK(:name, 0)", name=name) == [(1,)]:
                self._run(f"DROP DATABASE IF EXISTS {name}")
                self._execute("SELECT RELEASE_LOCK(:name)", name=name)

    def _admitted(self, sql: str) -> str:
        query = self._checked(sql)
        if any(table.db.lower() == "information_schema" for table in named_tables(query.tree)):
            raise QueryError(Failure.ERROR, "The information schema is not a part of the data.")
        return without_schema(query, frozenset({self._database.lower()}))

    def _definition(self, table: Table) -> str:
        keys = self._keys(table)
        inside = f"({', '.join(keys)}) " if keys else ""
        original, name = self._quoted(self._database), self._quoted(table.name)
        return f"CREATE TABLE {self._copy}.{name} {inside}SELECT * FROM {original}.{name} LIMIT 0"  # noqa: S608

    def _create_view(self, view: tuple[str, str]) -> None:
        name, sql = view
        self._run(f"CREATE SQL SECURITY INVOKER VIEW {self._quoted(name)} AS {sql}")


class MysqlConnection(MysqlSession):
    """A database on a server, given by ``mysql://account@host/name``.

    Raises:
        BackendError: the server does not answer.
        UsageError: the account has too many privileges; the message has the SQL for a suitable account.
    """

    def __init__(self, ref: DatabaseRef, limits: QueryLimits) -> None:
        self._orphans_dropped = False
        arguments = {
            "charset": "utf8mb4",
            "local_infile": False,
            "connect_timeout": _CONNECT_SECONDS,
            "conv": {**pymysql.converters.conversions, FIELD_TYPE.BIT: lambda data: int.from_bytes(data, "big")},
        }
        engine = make_engine(ref, "mysql+pymysql", arguments)
        connection = connect(engine, ref.location)
        try:
            super().__init__(connection, ref.location, limits, str(engine.url.database))
            privileges = self._forbidden_privileges()
            self._run("SET SESSION TRANSACTION READ ONLY")
        except (pymysql.Error, exc.DBAPIError) as error:
            connection.close()
            raise BackendError(f"The database {ref.location} cannot be used: {error_message(error)}") from None
        if privileges:
            connection.close()
            raise UsageError(_other_account(ref, self._database, privileges))

    def instance(self, data: TableRows) -> MysqlInstance:
        """A separate database on the server, with primary keys, UNIQUE and NOT NULL, but without CHECK.

        Raises:
            BackendError: it cannot be created, usually because the account may not create databases ``rlfactory_…``.
        """
        name = f"a varied copy of {self._name}"
        made = MysqlInstance(self, connect(self._connection.engine, name), name)
        try:
            if not self._orphans_dropped:
                made.drop_orphans()
                self._orphans_dropped = True
            made.build(data, self._views())
        except (pymysql.Error, exc.DBAPIError, BackendError) as error:
            made.close()
            raise BackendError(f"{name} cannot be made: {error_message(error)}.{self._grants(error)}") from error
        return made

    def _views(self) -> list[tuple[str, str]]:
        """The name and definition of each view, without the database's name."""
        place = re.compile(_LITERAL_OR_NAME.format(name=re.escape(self._quoted(self._database))), re.DOTALL)
        known = {table.name for table in self.schema().tables if table.view}
        found = self._execute(
            "SELECT table_name, view_definition FROM information_schema.views WHERE table_schema = DATABASE()"
        )
        return [(name, place.sub(_without_name, sql)) for name, sql in found if name in known]

    def _grants(self, error: Exception) -> str:
        if error_code(error) not in DENIED:
            return ""
        account = self._execute("SELECT current_user()")[0][0].replace("@", "'@'")
        return (
            f" Allow it: GRANT SELECT, INSERT, CREATE, DROP, CREATE VIEW, SHOW VIEW ON `{COPIES}`.* TO '{account}'; "
            f"GRANT SHOW VIEW ON {self._quoted(self._database)}.* TO '{account}';"
        )

    def _forbidden_privileges(self) -> list[str]:
        """Forbidden global privileges of the account and its roles."""
        grants = self._execute("SHOW GRANTS")
        if not self._mariadb:
            ((roles,),) = self._execute("SELECT current_role()")
            if roles != "NONE":
                grants += self._execute(f"SHOW GRANTS FOR current_user() USING {roles}")
        found = (match[1] for (line,) in grants if (match := _GLOBAL_GRANT.match(line)))
        return sorted({power.strip() for privileges in found for power in privileges.split(",")} & _PRIVILEGES)


def _without_name(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith("'") else ""


def _other_account(ref: DatabaseRef, database: str, privileges: Sequence[str]) -> str:
    return (
        f"The account of {ref.location} may do more than read: it has {', '.join(privileges)} on the whole server. "
        "A model's SQL would run with these rights. Make an account that only reads, and use that "
        "(the second line is for varied copies, which verification makes beside the database):\n"
        "  CREATE USER sql_reader IDENTIFIED BY '...';\n"
        f"  GRANT SELECT, INSERT, CREATE, DROP, CREATE VIEW, SHOW VIEW ON `{COPIES}`.* TO sql_reader;\n"
        f"  GRANT SELECT, SHOW VIEW ON `{database}`.* TO sql_reader;"
    )
