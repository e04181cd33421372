"""The conditions of CHECKs, which a database stores as SQL."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError


def checks_of(conditions: Iterable[str], dialect: str) -> tuple[str, ...]:
    """The conditions of declared CHECKs as SQL of SQLite, without those that sqlglot cannot read."""
    found = []
    for condition in conditions:
        with suppress(SqlglotError):
            found.append(parse_one(condition, dialect).transform(_listed).sql("sqlite"))
    return tuple(found)


def _listed(node: exp.Expr) -> exp.Expr:
    """``x IN (…)`` for PostgreSQL's ``x = ANY (ARRAY[…])``; literals without MySQL's character sets."""
    if isinstance(node, exp.Introducer):
        text: exp.Expr = node.expression
        return text
    array = (
        node.expression.find(exp.Array) if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any) else None
    )
    return exp.In(this=node.this, expressions=array.expressions) if array is not None else node
