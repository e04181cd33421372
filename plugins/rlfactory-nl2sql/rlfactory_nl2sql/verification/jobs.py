"""Jobs for the tools and rewards: run a query, read a schema."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlfactory_nl2sql.connection import QueryLimits, Rows
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.verification.connections import Connections, Database


@dataclass(frozen=True, slots=True)
class QueryJob:
    """Run one query; returns `Rows` or raises `QueryError`."""

    ref: DatabaseRef
    sql: str
    limits: QueryLimits = field(default_factory=QueryLimits)

    def run(self, connections: Connections) -> Rows:
        def query(found: Database) -> Rows:
            connections.clock(self.limits.seconds)
            return found.connection.query(self.sql, self.limits)

        return connections.use(self.ref, self.limits, query)


@dataclass(frozen=True, slots=True)
class SchemaJob:
    """Read the database's `Schema`."""

    ref: DatabaseRef

    def run(self, connections: Connections) -> Schema:
        return connections.use(self.ref, QueryLimits(), lambda found: found.connection.schema())
