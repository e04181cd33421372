"""The tables that a query names, and the query without schema names before them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from rlfactory_nl2sql.checks.parsing import Query


def named_tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """Tables and views in the query, without functions and without the names of its WITH clause."""
    local = {common.alias.lower() for common in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and (table.db or table.name.lower() not in local):
            yield table


def without_schema(query: Query, schemas: frozenset[str]) -> str:
    """The query's SQL with ``table`` for ``schema.table``; the unchanged text if it has no such name.

    Args:
        schemas: names in lower case.
    """
    if not any(node.text("db").lower() in schemas for node in query.tree.find_all(exp.Table, exp.Column)):
        return query.sql
    tree = query.tree.copy()
    for node in tree.find_all(exp.Table, exp.Column):
        if node.text("db").lower() in schemas:
            node.set("db", None)
            node.set("catalog", None)
    return tree.sql(dialect=query.dialect)
