"""MySQL (8 and later) and MariaDB (10.5 and later), through PyMySQL.

Guards: the account may only read (checked when connecting). The session and its transaction are read-only and always
rolled back. A call runs one statement. ``max_execution_time`` (MySQL) or ``max_statement_time`` (MariaDB) limits the
time, and ``KILL QUERY`` over a second connection if that fails. Variables, other databases, functions that wait or
access other systems, and comments that the server executes are refused before the server sees the query. The session
does not limit the server's memory; the server's configuration does.

A varied copy is a separate database ``rlfactory_…`` on the server, dropped when it is closed. Temporary tables do not
work, because MySQL reads one only once in a query and views cannot use them. The next process that makes a copy drops
those that a killed process has left: a copy's owner holds a lock of the copy's name, which the server releases when the
owner's session ends.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Sequence

import pymysql  # type: ignore[import-untyped]
import sqlalchemy
from pymysql.constants import FIELD_TYPE  # type: ignore[import-untyped]
from sqlalchemy import exc

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, TableRows
from rlfactory_nl2sql.databases.database import create_in_turn
from rlfactory_nl2sql.databases.mysql_session import COPY, DENIED, MysqlSession, error_code, error_message
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.databases.server import connect, make_engine
from rlfactory_nl2sql.databases.statement_guard import named_tables, without_schema
from rlfactory_nl2sql.schema import Table

COPIES = r"rlfactory\_%"
"""A pattern for LIKE and GRANT that matches all copies."""

_BUILD_MODE = "NO_AUTO_VALUE_ON_ZERO,STRICT_ALL_TABLES,ALLOW_INVALID_DATES"


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
            if COPY.fullmatch(name) and self._execute("SELECT GET_LOCK(:name, 0)", name=name) == [(1,)]:
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


_CONNECT_SECONDS = 10
_FORBIDDEN = frozenset({"ALL", "ALL PRIVILEGES", "FILE", "SUPER", "SHUTDOWN", "SYSTEM_USER", "SYSTEM_VARIABLES_ADMIN"})
_GLOBAL_GRANT = re.compile(r"GRANT (.+?) ON \*\.\* TO ")
_LITERAL_OR_NAME = r"'(?:[^'\\]|\\.|'')*'|{name}\."


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
            "conv": {**pymysql.converters.conversions, FIELD_TYPE.BIT: _from_bits},
        }
        engine = make_engine(ref, "mysql+pymysql", arguments)
        connection = connect(engine, ref.display)
        try:
            super().__init__(connection, ref.display, limits, str(engine.url.database))
            privileges = self._forbidden_privileges()
            self._run("SET SESSION TRANSACTION READ ONLY")
        except (pymysql.Error, exc.DBAPIError) as error:
            connection.close()
            raise BackendError(f"The database {ref.display} cannot be used: {error_message(error)}") from None
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
        return sorted({power.strip() for privileges in found for power in privileges.split(",")} & _FORBIDDEN)


def _from_bits(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _without_name(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith("'") else ""


def _other_account(ref: DatabaseRef, database: str, privileges: Sequence[str]) -> str:
    return (
        f"The account of {ref.display} may do more than read: it has {', '.join(privileges)} on the whole server. "
        "A model's SQL would run with these rights. Make an account that only reads, and use that "
        "(the second line is for varied copies, which verification makes beside the database):\n"
        "  CREATE USER sql_reader IDENTIFIED BY '...';\n"
        f"  GRANT SELECT, INSERT, CREATE, DROP, CREATE VIEW, SHOW VIEW ON `{COPIES}`.* TO sql_reader;\n"
        f"  GRANT SELECT, SHOW VIEW ON `{database}`.* TO sql_reader;"
    )
