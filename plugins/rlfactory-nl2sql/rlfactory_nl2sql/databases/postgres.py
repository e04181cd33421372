"""PostgreSQL, through psycopg.

Guards: the role is no superuser, cannot access the server's files, and cannot become a role that can (checked when
connecting). The transaction is read-only and always rolled back. The extended protocol takes a single statement.
``statement_timeout`` limits the time, and a cancel request if that fails. ``work_mem`` limits memory, and
``temp_file_limit`` the disk if the role may set it. As a second guard, functions that access anything but the data are
refused by name before the server sees the query. Gold queries and predictions run as one account: a prediction cannot
read a gold query, because queries are sent so that other sessions cannot see them (`PostgresSession`), and cannot end
another session, because the functions for that are refused. Only an account of its own for each would have the server
guarantee the latter.

A varied copy is a session with temporary tables and views of the same names, in ``pg_temp``, which precedes all schemas
in the search path. A query on it may name only the schema's tables, and schema names are removed from it, so that it
cannot read the original data. Views may still read tables outside the search path, which are not varied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import TopologicalSorter

import psycopg
import sqlalchemy
from psycopg import errors
from sqlalchemy import exc

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, TableRows
from rlfactory_nl2sql.databases.postgres_session import FORBIDDEN, PostgresSession, error_message
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.databases.server import connect, make_engine
from rlfactory_nl2sql.databases.statement_guard import check, named_tables, without_schema
from rlfactory_nl2sql.schema import Table


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
        query = check(sql, "postgres", FORBIDDEN)
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


_CONNECT_SECONDS = 10
_FORBIDDEN = """
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
        connection = connect(engine, ref.display)
        try:
            super().__init__(connection, ref.display, limits)
            privileges = [str(name) for (name,) in self._execute(_FORBIDDEN)]
        except (psycopg.Error, exc.DBAPIError) as error:
            connection.close()
            raise BackendError(f"The database {ref.display} cannot be used: {error}") from None
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
        f"The account of {ref.display} may do more than read: it is, or may become, {', '.join(privileges)}. A "
        "model's SQL would run with these rights. Make an account that only reads, and use that:\n"
        "  CREATE ROLE sql_reader LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD '...';\n"
        f'  GRANT CONNECT, TEMPORARY ON DATABASE "{database}" TO sql_reader;\n'
        "  GRANT pg_read_all_data TO sql_reader; -- or: GRANT SELECT ON ALL TABLES IN SCHEMA public TO sql_reader;\n"
        "  ALTER ROLE sql_reader SET default_transaction_read_only = on;"
    )
