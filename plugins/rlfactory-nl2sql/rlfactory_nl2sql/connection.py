"""The interface of every kind of database: run a query within limits, read the schema, make a varied copy.

Connections live in worker processes (`verification.pool`). One thread at a time uses a connection, which may block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from rlfactory_core.errors import BackendError, ConfigError, RlfactoryError
from rlfactory_nl2sql.schema import Schema

Row = tuple[Any, ...]
TableRows = Mapping[str, Sequence[Row]]
"""Table name -> rows in the order of the schema's columns, as the database's driver gives them."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of one query."""

    seconds: float = 5.0  # wall clock
    rows: int = 10_000
    bytes: int = 16 << 20  # of all values of the result
    memory_mb: int = 512  # of the database engine, if it runs in this process or can be configured


def limits_of(seconds: float, rows: int) -> QueryLimits:
    """The limits of a query that may have so many rows; its bytes may grow with them.

    Raises:
        ConfigError: no row is allowed.
    """
    if rows < 1:
        raise ConfigError(f"A result may have at least 1 row, not {rows}.")
    usual = QueryLimits(seconds=seconds)
    return replace(usual, rows=rows, bytes=max(usual.bytes, usual.bytes * rows // usual.rows))


@dataclass(frozen=True, slots=True)
class Rows:
    """A query's complete result."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


class Failure(StrEnum):
    """Why a query has no result. All of these are the query's fault; a lost database raises `BackendError`."""

    ERROR = "error"  # an error of the database: syntax, unknown names, types
    REFUSED = "refused"  # it would write, or access files, other databases or the network
    DEADLINE = "deadline"
    ROWS = "rows"
    BYTES = "bytes"
    MEMORY = "memory"


class QueryError(RlfactoryError):
    """A query failed. The message is for the model and for people, and has no paths or secrets."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure

    def __reduce__(self) -> tuple[Any, ...]:
        return QueryError, (self.failure, str(self))


class SessionLostError(BackendError):
    """The session with the database ended while it ran a query, which may be the query's fault or an outage."""


class Connection(Protocol):
    """A read-only connection to one database."""

    dialect: str  # as sqlglot calls it: sqlite, duckdb, postgres, mysql

    def query(self, sql: str, limits: QueryLimits) -> Rows:
        """Run one statement that only reads.

        Raises:
            QueryError: it failed or exceeded a limit. The connection remains usable.
            BackendError: the database is gone; make a new connection. `SessionLostError`, if it went in mid-query.
        """
        ...

    def schema(self) -> Schema:
        """Tables and views that the connection can read, without those of the system."""
        ...

    def read(self, table: str, rows: int) -> Sequence[Row]:
        """A sample of a table's rows, spread over the table and always the same; all rows of a small table."""
        ...

    def instance(self, data: TableRows) -> Connection:
        """Another database of the same schema, views included, which holds exactly these rows.

        Raises:
            BackendError: it cannot be created, for example because the account may not create temporary tables.
        """
        ...

    def close(self) -> None: ...
