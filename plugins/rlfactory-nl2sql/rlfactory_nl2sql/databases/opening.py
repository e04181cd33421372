"""Open a connection from a reference; drivers are imported when needed."""

from __future__ import annotations

from importlib import import_module

from rlfactory_core.errors import MissingExtraError
from rlfactory_nl2sql.connection import Connection, QueryLimits
from rlfactory_nl2sql.databases.reference import DatabaseRef


def connect(ref: DatabaseRef, limits: QueryLimits) -> Connection:
    """A read-only connection. ``limits`` holds for the database engine while the connection is open.

    Raises:
        BackendError: the database does not answer, or cannot be read.
        MissingExtraError: its driver is not installed.
        UsageError: its URL needs an environment variable that is not set.
    """
    try:
        module = import_module(f"rlfactory_nl2sql.databases.{ref.kind}")
    except ModuleNotFoundError as error:
        extra = "postgresql" if ref.kind == "postgres" else ref.kind
        raise MissingExtraError(
            f"The database {ref.location} needs the package {error.name}, which is not installed. "
            f"Install it: python -m pip install 'rlfactory-nl2sql[{extra}]'"
        ) from error
    opened: Connection = module.open_database(ref, limits)
    return opened
