"""The order of a query's rows: whether it guarantees one, and which rows its sort keys leave tied.

``SELECT name FROM singer ORDER BY age LIMIT 3`` has several right answers if singers have the same age. `tie_breaks`
makes queries that break ties in two ways, so their results differ where rows are tied. As the database itself sorts,
collations, NULLs and signed zeros tie exactly as they do in ORDER BY.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

from sqlglot import exp

from rlfactory_nl2sql.checks.parsing import Query, parse_query
from rlfactory_nl2sql.connection import QueryError
from rlfactory_nl2sql.schema import Schema

T = TypeVar("T")
_VOLATILE = (exp.Rand, exp.Randn, exp.Uuid)
_VOLATILE_NAME = re.compile(
    "random|randomblob|gen_random_uuid|uuidv?[0-9]?|uuid_short|nextval|clock_timestamp", re.IGNORECASE
)


def is_ordered(query: Query) -> bool:
    """Whether the outermost ORDER BY has a key that can differ between rows.

    An ORDER BY in a subquery, a CTE, a window or an aggregate does not count.
    """
    tree = query.tree
    while isinstance(tree, exp.Subquery) and not tree.args.get("order"):
        tree = tree.this
    order = tree.args.get("order")
    return any(not _is_constant(key.this) for key in _deciding(order.expressions if order else []))


def is_volatile(expression: exp.Expr) -> bool:
    """Whether each evaluation may give another value."""
    return any(
        isinstance(node, _VOLATILE) or (isinstance(node, exp.Anonymous) and _VOLATILE_NAME.fullmatch(node.name))
        for node in expression.walk()
    )


def _is_constant(key: exp.Expr) -> bool:
    # A whole number is the position of an output column.
    return isinstance(key, exp.Null) or (isinstance(key, exp.Literal) and not key.is_int)


def _deciding(keys: list[exp.Ordered]) -> list[exp.Ordered]:
    """The keys before the first random one. The keys after it only break ties of a random order."""
    return list(takewhile(lambda key: not is_volatile(key.this), keys))


@dataclass(frozen=True, slots=True)
class Cut:
    """A query, and what its outermost LIMIT and OFFSET leave of its rows."""

    query: Query
    limit: int | None
    offset: int
    wider: Query  # without OFFSET, and with a row more at the end

    @property
    def edges(self) -> tuple[int, ...]:
        """Where they cut the rows of ``wider``."""
        return (self.offset,) if self.limit is None else (self.offset, self.offset + self.limit)

    def part(self, rows: Sequence[T]) -> Sequence[T]:
        """What they leave of the rows of ``wider``."""
        return rows[self.offset :][: self.limit]


def cut(query: Query) -> Cut:
    """A query whose LIMIT and OFFSET are no plain numbers, or include ties, counts as one without."""
    numbers = _limit_and_offset(query.tree.unnest())
    if numbers in {None, (None, 0)}:
        return Cut(query, None, 0, query)
    limit, offset = numbers
    tree = query.tree.copy()
    most = None if limit is None else exp.Limit(expression=exp.Literal.number(offset + limit + 1))
    tree.unnest().set("limit", most)
    tree.unnest().set("offset", None)
    return Cut(query, limit, offset, Query(tree.sql(query.dialect), query.dialect, tree))


def _limit_and_offset(tree: exp.Expr) -> tuple[int | None, int] | None:
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    most: int | None = None
    if limit is not None:
        options = limit.args.get("limit_options")
        if options is not None and options.args.get("with_ties"):
            return None
        count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
        most = 1 if count is None and isinstance(limit, exp.Fetch) else _number(count)
        if most is None:
            return None
    start = 0 if offset is None else _number(offset.expression)
    return None if start is None else (most, start)


def _number(expression: exp.Expr | None) -> int | None:
    plain = isinstance(expression, exp.Literal) and expression.is_int
    return int(expression.name) if expression is not None and plain else None


def tie_breaks(query: Query, schema: Schema, columns: int) -> list[str]:
    """Readings of the query that treat ties differently; none if nothing in it chooses among ties.

    The outermost SELECT, if it orders, and each one with LIMIT or OFFSET get their output columns as further sort keys,
    in the first reading ascending and in the second descending: only these can differ between tied rows in a way that
    the rest sees. ROW_NUMBER gets those of its SELECT that are no windows; a third reading has RANK for it, which gives
    tied rows one number.

    Args:
        columns: the number of the query's.
    """
    readings = [_broken(query, schema, columns, descending=side) for side in (False, True)]
    if not all(readings):
        return []
    if query.tree.find(exp.RowNumber):
        readings.append(query.tree.transform(lambda node: exp.Rank() if isinstance(node, exp.RowNumber) else node))
    return [tree.sql(query.dialect) for tree in readings if tree is not None]


def inner_cuts(query: Query) -> list[Cut]:
    """The SELECTs with LIMIT within the query, each as a query of its own."""
    top = query.tree.unnest()
    found = []
    for select in query.tree.find_all(exp.Query):
        if select is not top and (select.args.get("limit") or select.args.get("offset")):
            with suppress(QueryError):
                found.append(cut(parse_query(select.sql(query.dialect), query.dialect)))
    return found


def _broken(query: Query, schema: Schema, columns: int, *, descending: bool) -> exp.Expr | None:
    tree = query.tree.copy()
    top = tree.unnest()
    changed = False
    for select in list(tree.find_all(exp.Query)):
        if select.args.get("limit") or select.args.get("offset") or (select is top and is_ordered(query)):
            keys = _places(columns) if select is top else _outputs(select, schema)
            _add_keys(select, keys, descending=descending)
            changed |= bool(keys)
    for window in list(tree.find_all(exp.Window)):
        around = window.find_ancestor(exp.Select)
        if isinstance(window.this, exp.RowNumber) and isinstance(around, exp.Select):
            plain = [item.unalias().copy() for item in around.expressions if not item.find(exp.Window, exp.Star)]
            _add_keys(window, plain or _columns(around, schema), descending=descending)
            changed = True
    return tree if changed else None


def _add_keys(holder: exp.Expr, keys: list[exp.Expr], *, descending: bool) -> None:
    order = holder.args.get("order") or exp.Order(expressions=[])
    added = [exp.Ordered(this=key, desc=descending, nulls_first=not descending) for key in keys]
    holder.set("order", exp.Order(expressions=[*(key.copy() for key in _deciding(order.expressions)), *added]))


def _outputs(select: exp.Query, schema: Schema) -> list[exp.Expr]:
    """The output columns as sort keys; none if a star over something else than tables hides them."""
    if select.is_star:
        return _columns(select, schema)
    return _places(len(select.selects))


def _places(columns: int) -> list[exp.Expr]:
    return [exp.Literal.number(place) for place in range(1, columns + 1)]


def _columns(select: exp.Query, schema: Schema) -> list[exp.Expr]:
    """The columns of all tables in FROM, if SELECT * is all that the query selects; otherwise none."""
    if not isinstance(select, exp.Select) or not select.args.get("from_"):
        return []
    sources = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    found: list[exp.Expr] = []
    for source in sources:
        table = schema.table(source.name) if isinstance(source, exp.Table) else None
        if table is None:
            return []
        found += [exp.column(column.name, source.alias_or_name, quoted=True) for column in table.columns]
    return found
