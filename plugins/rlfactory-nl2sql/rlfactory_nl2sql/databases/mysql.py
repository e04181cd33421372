"""MySQL (8 and later) and MariaDB (10.5 and later), through PyMySQL.

Guards: the account may only read (checked when connecting). The session and its transaction are read-only and always
rolled back. A call runs one statement. ``max_execution_time`` (MySQL) or ``max_statement_time`` (MariaDB) limits the
time, and ``KILL QUERY`` over a second connection if that fails. Variables, other databases, functions that wait or
access other systems, and comments that the server executes are refused before the server sees the query.

A varied copy is a separate database ``rlfactory_…``, since MySQL reads a temporary table only once in a query and never
in a view. It is dropped when it is closed, or when the next process connects: its owner holds a lock of its name, which
the server releases when the owner's session ends.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence

import pymysql  # type: ignore[import-untyped]
from pymysql.constants import CR, ER, FIELD_TYPE  # type: ignore[import-untyped]
from pymysql.cursors import SSCursor  # type: ignore[import-untyped]
from sqlalchemy import exc
from sqlglot import exp

from rlfactory_core.errors import BackendError
from rlfactory_nl2sql.connection import Failure, QueryError, QueryLimits, Row, SessionLostError, TableRows
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.databases.server import ServerDatabase
from rlfactory_nl2sql.databases.statement_guard import Forbidden, check, without_schema
from rlfactory_nl2sql.schema import Table

_COPY = re.compile(r"rlfactory_[0-9a-f]{16}")
"""Names of varied copies."""

_LOCK_SECONDS = 2  # time to wait for a program that writes
_FORBIDDEN = Forbidden(
    functions="""
        benchmark get_lock is_free_lock is_used_lock lastval load_file master_gtid_wait master_pos_wait nextval
        release_all_locks release_lock setval sleep source_pos_wait sys_eval sys_exec wait_*""",
)
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
_DENIED = {1792, 1044, 1142, 1143, 1227, 1290, 1370}
"""It would write in a read-only transaction, or the account lacks the privilege."""

_STOPPED = {ER.QUERY_INTERRUPTED, 1969, 3024}  # killed; max_statement_time; max_execution_time
_TOO_LARGE = {ER.OUTOFMEMORY, ER.OUT_OF_SORTMEMORY, ER.OUT_OF_RESOURCES, ER.DISK_FULL, ER.RECORD_FILE_FULL}
_GONE = {0, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, CR.CR_SERVER_LOST_EXTENDED, ER.SERVER_SHUTDOWN, 1927}
_COPIES = r"rlfactory\_%"
"""A pattern for LIKE and GRANT that matches all copies."""
_BUILD_MODE = "NO_AUTO_VALUE_ON_ZERO,STRICT_ALL_TABLES,ALLOW_INVALID_DATES"
_PRIVILEGES = frozenset({"ALL", "ALL PRIVILEGES", "FILE", "SUPER", "SHUTDOWN", "SYSTEM_USER", "SYSTEM_VARIABLES_ADMIN"})
_GLOBAL_GRANT = re.compile(r"GRANT (.+?) ON \*\.\* TO ")


class MysqlDatabase(ServerDatabase):
    """One session. See `server.ServerDatabase`."""

    dialect = "mysql"
    _quote = "`"
    _error = pymysql.Error
    _relations = """
        SELECT table_name, table_type LIKE '%VIEW' FROM information_schema.tables
        WHERE table_schema = DATABASE() AND table_type <> 'SEQUENCE' ORDER BY 2, create_time, 1
    """
    _account = (
        "  CREATE USER sql_reader IDENTIFIED BY '...';\n"
        "  GRANT SELECT, INSERT, CREATE, DROP, CREATE VIEW, SHOW VIEW ON `" + _COPIES + "`.* TO sql_reader; "
        "-- for the varied copies that verification makes beside the database\n"
        "  GRANT SELECT, SHOW VIEW ON `{0}`.* TO sql_reader;"
    )

    def _set_up(self) -> None:
        self._copy = f"rlfactory_{secrets.token_hex(8)}"  # the name of this database, if it is a copy
        ((modes, version),) = self._execute("SELECT @@sql_mode, version()")
        self._mariadb = "MariaDB" in version
        self._modes = ",".join(mode for mode in modes.split(",") if mode not in _OTHER_QUOTES)
        self._execute(f"SET SESSION sql_mode = '{self._modes}', lock_wait_timeout = {_LOCK_SECONDS}")
        self._execute(f"SET SESSION innodb_lock_wait_timeout = {_LOCK_SECONDS}")
        if self._original is None:
            with contextlib.suppress(pymysql.Error):  # the account may see those of others
                self._drop_orphans()
            self._execute("SET SESSION TRANSACTION READ ONLY")

    def _excess(self) -> str:
        """The forbidden global privileges of the account and its roles."""
        grants = self._execute("SHOW GRANTS")
        if not self._mariadb:
            ((roles,),) = self._execute("SELECT current_role()")
            if roles != "NONE":
                grants += self._execute(f"SHOW GRANTS FOR current_user() USING {roles}")
        found = (match[1] for (line,) in grants if (match := _GLOBAL_GRANT.match(line)))
        powers = {power.strip() for privileges in found for power in privileges.split(",")} & _PRIVILEGES
        return f"it has {', '.join(sorted(powers))} on the whole server" if powers else ""

    def _build(self, original: MysqlDatabase, tables: Sequence[Table], data: TableRows) -> None:
        invisible = self._invisible()
        self._execute(f"SET SESSION sql_mode = '{_BUILD_MODE}'")
        ((charset, collation),) = self._execute("SELECT @@character_set_database, @@collation_database")
        self._execute("SELECT GET_LOCK(%s, 0)", self._copy)
        self._execute(f"CREATE DATABASE {self._copy} CHARACTER SET {charset} COLLATE {collation}")
        for table in tables:
            name, columns = self._quoted(table.name), ", ".join(self._quoted(column.name) for column in table.columns)
            parts = ", ".join([*self._keys(table), *invisible.get(table.name, ())])
            source = f"SELECT {columns} FROM {self._quoted(self._database)}.{name} LIMIT 0"  # noqa: S608
            self._execute(f"CREATE TABLE {self._copy}.{name} {f'({parts})' if parts else ''} {source}")
            if rows := data.get(table.name):
                marks = ", ".join(["%s"] * len(table.columns))
                insert = f"INSERT INTO {self._copy}.{name} ({columns})".replace("%", "%%")
                with self._driver.cursor() as cursor:
                    cursor.executemany(f"{insert} VALUES ({marks})", rows)
        self._execute(f"USE {self._copy}")
        self._create_views(original._views())
        self._execute(f"SET SESSION sql_mode = '{self._modes}'")

    def _drop_orphans(self) -> None:
        """Drop copies whose owners' sessions have ended."""
        for (name,) in self._execute(f"SHOW DATABASES LIKE '{_COPIES}'"):
            if _COPY.fullmatch(name) and self._execute("SELECT GET_LOCK(%s, 0)", name) == [(1,)]:
                self._execute(f"DROP DATABASE IF EXISTS {name}")
                self._execute("SELECT RELEASE_LOCK(%s)", name)

    def _invisible(self) -> dict[str, list[str]]:
        """The definitions of the columns that ``SELECT *`` leaves out, by table; without NOT NULL, as MariaDB wants."""
        found: dict[str, list[str]] = {}
        for table, column, kind, charset, collation in self._execute(
            "SELECT table_name, column_name, column_type, character_set_name, collation_name "
            "FROM information_schema.columns WHERE table_schema = DATABASE() AND extra LIKE '%INVISIBLE%'"
        ):
            text = f" CHARACTER SET {charset} COLLATE {collation}" if charset else ""
            found.setdefault(table, []).append(f"{self._quoted(column)} {kind}{text} INVISIBLE")
        return found

    def _views(self) -> list[tuple[str, str]]:
        """The name and definition of each view, without the database's name."""
        text_or_name = rf"('(?:[^'\\]|\\.|'')*')|{re.escape(self._quoted(self._database))}\."
        found = self._execute(
            "SELECT table_name, view_definition FROM information_schema.views WHERE table_schema = DATABASE()"
        )
        return [(name, re.sub(text_or_name, lambda match: match[1] or "", sql, flags=re.DOTALL)) for name, sql in found]

    def _create_views(self, left: list[tuple[str, str]]) -> None:
        """Create each view after those that it reads."""
        while left:
            tried, left = left, []
            for name, sql in tried:
                try:
                    self._execute(f"CREATE SQL SECURITY INVOKER VIEW {self._quoted(name)} AS {sql}")
                except pymysql.ProgrammingError:
                    left.append((name, sql))
                    if left == tried:
                        raise

    def close(self) -> None:
        if self._original is not None:
            with contextlib.suppress(pymysql.Error):
                self._limit_time(0)
                self._execute(f"DROP DATABASE IF EXISTS {self._copy}")
        super().close()

    def _admitted(self, sql: str) -> str:
        query = check(sql, "mysql", _FORBIDDEN)
        if query.tree.find(exp.Parameter, exp.SessionParameter):
            raise QueryError(Failure.REFUSED, "Refused: variables (@name, @@name) cannot be used here.")
        for table in query.named_tables():
            database = table.db.lower()
            if database == "information_schema" and table.name.lower() in _INFORMATION:
                if self._original is not None:
                    raise QueryError(Failure.ERROR, "The information schema is not a part of the data.")
            elif database and database != self._database.lower():
                raise QueryError(Failure.REFUSED, f"Refused: {table.db}.{table.name} is not part of this database.")
        return sql if self._original is None else without_schema(query, frozenset({self._database.lower()}))

    def _begin(self, seconds: float) -> None:
        self._limit_time(seconds)
        self._execute("START TRANSACTION READ ONLY")

    def _limit_time(self, seconds: float) -> None:
        limit = f"max_statement_time = {seconds}" if self._mariadb else f"max_execution_time = {int(seconds * 1000)}"
        self._execute(f"SET SESSION {limit}")

    @contextlib.contextmanager
    def _results(self, sql: str) -> Iterator[tuple[tuple[str, ...], Iterable[Row]]]:
        """From an unbuffered cursor. If a limit ends the reading, the server is told to stop."""
        cursor = self._driver.cursor(SSCursor)
        try:
            cursor.execute(sql)
            yield tuple(column[0] for column in cursor.description or ()), cursor
        except QueryError:
            self._stop()
            raise
        finally:
            try:
                cursor.close()
            except pymysql.Error:
                pass
            except AttributeError:  # PyMySQL's error if the session was aborted; it would try again when both are freed
                cursor._result.unbuffered_active = False
                cursor.connection = None

    def _stop(self) -> None:
        with contextlib.suppress(exc.SQLAlchemyError), self._engine.connect() as other:
            other.exec_driver_sql(f"KILL QUERY {self._driver.thread_id()}")

    def _abort(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self._driver._sock.shutdown(socket.SHUT_RDWR)

    def _kind(self, error: Exception) -> Failure | type[BackendError]:
        code = _code(error)
        if code in _TOO_LARGE:
            return Failure.MEMORY
        if code in _STOPPED:
            return Failure.DEADLINE
        if code in _GONE or not self._driver.open:
            return SessionLostError
        if code == ER.LOCK_WAIT_TIMEOUT:
            return BackendError
        return Failure.REFUSED if code in _DENIED else Failure.ERROR

    def _message(self, error: Exception) -> str:
        """The server's message, without the account, its address and the name of a copy."""
        text = str(error.args[-1]) if error.args else type(error).__name__
        return _COPY.sub(self._database, re.sub(r" (to|for) user '[^']*'@'[^']*'", "", text))


def open_database(ref: DatabaseRef, limits: QueryLimits) -> MysqlDatabase:
    numbers = {**pymysql.converters.conversions, FIELD_TYPE.BIT: lambda data: int.from_bytes(data, "big")}
    options = {"charset": "utf8mb4", "local_infile": False, "conv": numbers}
    return MysqlDatabase.open(ref, limits, "mysql+pymysql", options)


def _code(error: Exception) -> int | None:
    code = error.args[0] if isinstance(error, pymysql.Error) and error.args else None
    return code if isinstance(code, int) else None
