"""Open a connection from a reference; drivers are imported when needed."""

from __future__ import annotations

from rlfactory_core.errors import MissingExtraError
from rlfactory_nl2sql.connection import Connection, QueryLimits
from rlfactory_nl2sql.databases.reference import DatabaseRef

_EXTRAS = {"duckdb": "duckdb", "postgres": "postgresql", "mysql": "mysql"}


def connect(ref: DatabaseRef, limits: QueryLimits) -> Connection:
    """A read-only connection. ``limits`` holds for the database engine while the connection is open.

    Raises:
        BackendError: the database does not answer, or cannot be read.
        MissingExtraError: its driver is not installed.
        UsageError: its URL needs an environment variable that is not set.
    """
    try:
        return _opened(ref, limits)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(ref.kind)
        if extra is None or (error.name or "").startswith("rlfactory"):
            raise
        raise MissingExtraError(
            f"The database {ref.location} needs the package {error.name}, which is not installed. "
            f"Install it: python -m pip install 'rlfactory-nl2sql[{extra}]'"
        ) from error


def _opened(ref: DatabaseRef, limits: QueryLimits) -> Connection:
    if ref.kind == "sqlite":
        from rlfactory_nl2sql.databases.sqlite import SqliteConnection

        return SqliteConnection(ref, limits)
    if ref.kind == "duckdb":
        from rlfactory_nl2sql.databases.duck import DuckConnection

        return DuckConnection(ref, limits)
    if ref.kind == "postgres":
        from rlfactory_nl2sql.databases.postgres import PostgresConnection

        return PostgresConnection(ref, limits)
    from rlfactory_nl2sql.databases.mysql import MysqlConnection

    return MysqlConnection(ref, limits)
