"""Names in a query that do not exist in the database, with hints for correction.

A name is reported only if it certainly does not exist, because a false report would punish a correct query. The
database refuses the other wrong names.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from rlfactory_core.errors import nearest
from rlfactory_nl2sql.checks.parsing import Query
from rlfactory_nl2sql.checks.scopes import Kind, Scopes, Source
from rlfactory_nl2sql.schema import Schema

_SYSTEM_TABLES = ("sqlite_", "pg_", "duckdb_", "pragma_", "information_schema")


def unknown_names(query: Query, schema: Schema) -> tuple[str, ...]:
    """One message for each unknown table or column; empty if all are known or in doubt."""
    scopes = Scopes(query, schema)
    tables = [table.name for table in schema.tables]
    messages = [f'There is no table "{name}". {nearest(name, tables)}' for name in _unknown_tables(query, schema)]
    for column in scopes.columns:
        match = scopes.find(column)
        if match.kind is Kind.NO_SOURCE:
            known = [source.name for source in scopes.around(column) if source.name]
            messages.append(f'There is no table or alias "{column.table}" in FROM. {nearest(column.table, known)}')
        elif match.kind is Kind.NO_COLUMN and not isinstance(column.this, exp.Star):
            sources = [match.source] if match.source else scopes.around(column)
            messages.append(_no_column(column.name, sources, schema))
    return tuple(dict.fromkeys(messages))


def _unknown_tables(query: Query, schema: Schema) -> Iterator[str]:
    for table in query.named_tables():
        name = table.name.lower()
        plain = not table.db and "." not in name
        if plain and not schema.table(name) and not name.startswith(_SYSTEM_TABLES):
            yield table.name


def _no_column(name: str, sources: list[Source], schema: Schema) -> str:
    if not sources:
        return f'There is no column "{name}": the query has no FROM.'
    places = dict.fromkeys(source.table.name if source.table else source.name for source in sources)
    written = ([one.name for one in source.table.columns] if source.table else source.columns for source in sources)
    elsewhere = [
        table.name for table in schema.tables if any(column.name.lower() == name.lower() for column in table.columns)
    ]
    hint = (
        f"{' and '.join(elsewhere)} {'have' if len(elsewhere) > 1 else 'has'} it."
        if elsewhere
        else nearest(name, [one for names in written for one in names])
    )
    return f'There is no column "{name}" in {" or ".join(place for place in places if place) or "FROM"}. {hint}'
