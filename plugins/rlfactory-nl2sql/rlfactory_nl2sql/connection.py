"""What every kind of database can do: run a query within limits, read the schema, sample tables, make a varied copy.

Connections live in worker processes (`verification.pool`). One thread at a time uses a connection, which may block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from rlfactory_core.errors import BackendError, RlfactoryError
from rlfactory_nl2sql.schema import Schema, Table

_SAMPLED = 1_000_000  # rows; of a larger table only the first are sampled, to bound the time
_PLACE = "rlfactory_place"  # a column of ours, in our own queries

Row = tuple[Any, ...]
TableRows = Mapping[str, Sequence[Row]]
"""Table name -> rows in the order of the schema's columns, as the database's driver gives them."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of one query."""

    seconds: float = 5.0  # of the clock; in SQLite of work, see `databases.limiting.Budget`
    rows: int = 10_000
    bytes: int = 16 << 20  # of all values of the result
    memory_mb: int = 512  # of the database engine, if it runs in this process or can be configured


def limits_of(seconds: float, rows: int) -> QueryLimits:
    """The limits of a query that may have so many rows; its bytes may grow with them."""
    usual = QueryLimits(seconds=seconds)
    return replace(usual, rows=rows, bytes=max(usual.bytes, usual.bytes * rows // usual.rows))


@dataclass(frozen=True, slots=True)
class Rows:
    """A query's complete result."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


class Failure(Enum):
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
        return type(self), (self.failure, str(self))


class SessionLostError(BackendError):
    """The session with the database ended while it ran a query, which may be the query's fault or an outage."""


class Connection(ABC):
    """A read-only connection to one database, whose name messages may show."""

    dialect: str  # as sqlglot calls it: sqlite, postgres, mysql
    _quote = '"'

    def __init__(self, name: str) -> None:
        self._name = name
        self._schema: Schema | None = None
        self.used = 0.0  # of its seconds, by the last query

    @abstractmethod
    def query(self, sql: str, limits: QueryLimits) -> Rows:
        """Run one statement that only reads.

        Raises:
            QueryError: it failed or exceeded a limit. The connection remains usable.
            BackendError: the database is gone; make a new connection. `SessionLostError`, if it went in mid-query.
        """

    def schema(self) -> Schema:
        """Tables and views that the connection can read, without those of the system; raises `BackendError`."""
        if self._schema is None:
            self._schema = self._read_schema()
        return self._schema

    def read(self, table: str, rows: int) -> Sequence[Row]:
        """A sample of a table's rows, always the same; all rows of a small table.

        Every n-th of the first million rows. Their order is the database's own, which sorts nothing. Raises
        `BackendError`.
        """
        known = self._known(table)
        if not known.columns:
            return ()  # PostgreSQL allows it
        names = ", ".join(self._quoted(column.name) for column in known.columns)
        first = f"FROM {self._quoted(known.name)} LIMIT {_SAMPLED}) AS part_"
        ((held,),) = self._sample(f"SELECT count(*) FROM (SELECT 1 {first}", 1)  # noqa: S608
        numbered = f"SELECT {names}, row_number() OVER () - 1 AS {_PLACE} FROM (SELECT {names} {first}"  # noqa: S608
        step = max(-(-held // rows), 1)
        return self._sample(f"SELECT {names} FROM ({numbered}) AS numbered_ WHERE {_PLACE} % {step} = 0", rows)  # noqa: S608

    @abstractmethod
    def instance(self, data: TableRows) -> Connection:
        """Another database of the same schema, views included, which holds exactly these rows.

        It has the keys, UNIQUE and NOT NULL, but no CHECKs. Raises `BackendError` if it cannot be created, for example
        because the account may not create temporary tables.
        """

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _read_schema(self) -> Schema: ...

    @abstractmethod
    def _sample(self, sql: str, rows: int) -> Sequence[Row]:
        """All rows of a query of `read`, which has about so many; raises `BackendError`."""

    def _known(self, name: str) -> Table:
        found = self.schema().table(name)
        if found is None:
            raise BackendError(f"The database {self._name} has no table {name!r} any more.")
        return found

    def _keys(self, table: Table) -> list[str]:
        """The constraints of a table's keys, for its definition."""
        keys = [("PRIMARY KEY", table.primary_key), *(("UNIQUE", columns) for columns in table.unique)]
        return [f"{kind} ({', '.join(map(self._quoted, columns))})" for kind, columns in keys if columns]

    def _quoted(self, name: str) -> str:
        return quoted(name, self._quote)


def quoted(name: str, quote: str = '"') -> str:
    """A name as an SQL identifier."""
    return quote + name.replace(quote, quote * 2) + quote
