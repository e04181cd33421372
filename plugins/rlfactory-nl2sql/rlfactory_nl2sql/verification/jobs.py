"""Jobs for the tools: list tables, describe one, run a query. Their results are the texts that the model reads."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlfactory_core.errors import nearest
from rlfactory_nl2sql.connection import Failure, QueryError, QueryLimits
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.formatting import rows_text, table_line, tables_text
from rlfactory_nl2sql.verification.connections import Connections

_SCHEMA_S = 20.0  # reading a server's catalogue of many tables takes time
_QUOTED = 64  # characters of an unknown name that a message quotes


@dataclass(frozen=True, slots=True)
class TablesJob:
    """List the tables; with the name of one, describe it. Raises `QueryError` if there is none of this name."""

    ref: DatabaseRef
    table: str = ""
    seconds: float = _SCHEMA_S

    def run(self, connections: Connections) -> str:
        schema = connections.use(self.ref, QueryLimits(), lambda found: found.connection.schema())
        if not self.table:
            return tables_text(schema)
        table = schema.table(self.table)
        if table is None:
            name, known = self.table[:_QUOTED], [each.name for each in schema.tables]
            raise QueryError(Failure.ERROR, f"there is no table {name!r}. {nearest(name, known)}")
        return table_line(table)


@dataclass(frozen=True, slots=True)
class QueryJob:
    """Run one query: the number of its rows, and a text with the first of them. Raises `QueryError`."""

    ref: DatabaseRef
    sql: str
    limits: QueryLimits = field(default_factory=QueryLimits)
    shown: int = 0

    @property
    def seconds(self) -> float:
        return self.limits.seconds

    def run(self, connections: Connections) -> tuple[int, str]:
        clock = connections.clock(self.seconds)
        rows = connections.use(
            self.ref, self.limits, lambda found: clock.query(found.connection, self.sql, self.limits)
        )
        return len(rows.rows), rows_text(rows, self.shown)
