"""What a database stores as SQL: the conditions of CHECKs, and views, which are made again in copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

View = TypeVar("View")


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


def create_in_turn(
    views: Sequence[View], create: Callable[[View], object], missing: type[Exception] | tuple[type[Exception], ...]
) -> None:
    """Create each view after those that it reads; ``missing``: the error for one that reads what is not there yet."""
    while views:
        failed: list[tuple[View, Exception]] = []
        for view in views:
            try:
                create(view)
            except missing as error:
                failed.append((view, error))
        if len(failed) == len(views):
            raise failed[0][1]
        views = [view for view, _ in failed]
