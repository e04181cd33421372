"""Readings of a query that break the ties of its ORDER BYs in different ways.

A database may choose any of the rows that an ORDER BY leaves tied. If two readings have different results, the query's
answer on that database depends on this choice.
"""

from __future__ import annotations

from contextlib import suppress

from sqlglot import exp

from rlfactory_nl2sql.checks.parsing import Query, parse_query
from rlfactory_nl2sql.connection import QueryError
from rlfactory_nl2sql.schema import Schema


def tie_breaks(query: Query, schema: Schema, *, outermost: bool) -> list[str]:
    """Readings of the query that treat ties differently; none if nothing in it chooses among ties.

    A SELECT with LIMIT or OFFSET gets its output columns as further sort keys, ascending and descending: only these can
    differ between tied rows in a way that the rest of the query sees. ROW_NUMBER gets the output columns of its SELECT
    that are no windows, and is read as RANK, which gives tied rows one number.

    Args:
        outermost: whether to break the ties of the outermost LIMIT, too.
    """
    readings = [_broken(query.tree, schema, outermost=outermost, descending=side) for side in (False, True)]
    if not any(readings):
        return []
    ranked = query.tree.transform(lambda node: exp.Rank() if isinstance(node, exp.RowNumber) else node)
    return [tree.sql(query.dialect) for tree in (*readings, ranked) if tree is not None]


def inner_limits(query: Query) -> list[Query]:
    """The SELECTs with LIMIT within the query, each as a query of its own."""
    top = query.tree.unnest()
    found = []
    for select in query.tree.find_all(exp.Query):
        if select is not top and (select.args.get("limit") or select.args.get("offset")):
            with suppress(QueryError):
                found.append(parse_query(select.sql(query.dialect), query.dialect))
    return found


def _broken(tree: exp.Expr, schema: Schema, *, outermost: bool, descending: bool) -> exp.Expr | None:
    tree = tree.copy()
    top = tree.unnest()
    changed = False
    for select in list(tree.find_all(exp.Query)):
        if not (select.args.get("limit") or select.args.get("offset")) or (select is top and not outermost):
            continue
        width = _width(select, schema)
        if width:
            keys: list[exp.Expr] = [exp.Literal.number(place) for place in range(1, width + 1)]
            _add_keys(select, keys, descending=descending)
            changed = True
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
    holder.set("order", exp.Order(expressions=[*(key.copy() for key in order.expressions), *added]))


def _width(select: exp.Query, schema: Schema) -> int:
    """The number of output columns; 0 if a star over something else than tables hides it."""
    return len(_columns(select, schema)) if select.is_star else len(select.selects)


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
