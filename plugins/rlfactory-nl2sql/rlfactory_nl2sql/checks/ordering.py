"""The order of a query's rows: whether it guarantees one, and which rows its sort keys leave tied.

``SELECT name FROM singer ORDER BY age LIMIT 3`` has several right answers if singers have the same age. `untie` makes a
query that returns all rows in order, each with the database's own rank of its age (``DENSE_RANK``) as an extra column.
Collations, NULLs and signed zeros then tie exactly as they do in ORDER BY. sqlglot writes the new tree as text, which
counts only if it is parsed back to the same tree. `tie_breaks` finds whether ties within the query matter.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

from sqlglot import exp

from rlfactory_nl2sql.checks.parsing import Query, parse_query, written
from rlfactory_nl2sql.connection import QueryError
from rlfactory_nl2sql.schema import Schema

_VOLATILE = (exp.Rand, exp.Randn, exp.Uuid)
_VOLATILE_NAME = re.compile(
    "random|randomblob|gen_random_uuid|uuidv?[0-9]?|uuid_short|nextval|clock_timestamp", re.IGNORECASE
)


def is_ordered(query: Query) -> bool:
    """Whether the outermost ORDER BY has a key that can differ between rows.

    An ORDER BY in a subquery, a CTE, a window or an aggregate does not count.
    """
    return any(not _is_constant(key.this) for key in _deciding(sort_keys(query.tree)))


def sort_keys(tree: exp.Expr) -> list[exp.Ordered]:
    """The keys of the outermost ORDER BY, through parentheses around the query; set operations have their own."""
    node: exp.Expr | None = tree
    while node is not None:
        order = node.args.get("order")
        if order is not None:
            return list(order.expressions)
        node = node.this if isinstance(node, exp.Subquery) else None
    return []


def is_volatile(expression: exp.Expr) -> bool:
    """Whether each evaluation may give another value."""
    return any(
        isinstance(node, _VOLATILE) or (isinstance(node, exp.Anonymous) and _VOLATILE_NAME.fullmatch(node.name))
        for node in expression.walk()
    )


def _is_constant(key: exp.Expr) -> bool:
    # A whole number is the position of an output column.
    return isinstance(key, exp.Null) or (isinstance(key, exp.Literal) and not key.is_int)


_RANK = "untied_rank"


@dataclass(frozen=True, slots=True)
class Untied:
    """The query without its outermost LIMIT and OFFSET, and with the rank of its rows as last column.

    Rows ``offset`` to ``offset + limit`` are one right answer, and rows of equal rank may change places. A database may
    refuse ``sql``, or return too many rows. Then the original query's result is the only right answer.
    """

    sql: str
    keys: int  # number of extra columns at the end, of which the last is the rank; 0 if the query has no order
    limit: int | None
    offset: int


def untie(query: Query, schema: Schema) -> Untied | None:
    """The rewritten query; None if that is not reliably possible."""
    tree = query.tree
    while isinstance(tree, exp.Subquery) and tree.is_wrapper:
        tree = tree.this
    cut = _cut(tree)
    if not isinstance(tree, (exp.Select, exp.SetOperation)) or cut is None:
        return None
    limit, offset = cut
    tree = tree.copy()
    tree.set("limit", None)
    tree.set("offset", None)
    keys = _deciding(sort_keys(tree))
    known = {column.name.lower() for table in schema.tables for column in table.columns}
    extra = _add_rank(tree, keys, known, query.dialect) if keys else 0
    if extra is None:
        return None
    sql = written(tree.find_ancestor(exp.Select) or tree, query.dialect)
    if sql is not None and keys:
        most = "" if limit is None else f" WHERE {_RANK} <= {limit + offset}"
        sql = f"SELECT * FROM ({sql}) AS untied_all{most} ORDER BY {_RANK}"  # noqa: S608
    return None if sql is None else Untied(sql, extra, limit, offset)


def _add_rank(tree: exp.Query, keys: list[exp.Ordered], known: Collection[str], dialect: str) -> int | None:
    """Put the query into a derived table, ranked by its output columns; the number of columns that this adds.

    A key that is no output column becomes one, where that changes no rows. None if it would, or if it is not certain
    what a key means.
    """
    distinct = tree.args.get("distinct") if isinstance(tree, exp.Select) else None
    if distinct is not None and distinct.args.get("on") is not None:
        return None
    fixed = distinct is not None or not isinstance(tree, exp.Select)
    _name_apart(tree)
    keys = [key.copy() for key in keys]
    added = 0
    for key in keys:
        node = key.this.this if isinstance(key.this, exp.Collate) else key.this
        inner = {column.name.lower() for column in node.find_all(exp.Column) if not column.table}
        named = inner & {item.alias.lower() for item in tree.selects if isinstance(item, exp.Alias)}
        outside = isinstance(node, exp.Column) and not node.table and fixed and tree.is_star
        if name := node.this if outside else _output(node, tree):
            node.replace(exp.column(name.copy(), "untied"))
        elif isinstance(node.unnest(), exp.Literal):
            return None  # ORDER BY (1) is a place for some databases, and a constant for others
        elif named and dialect != "postgres":  # PostgreSQL reads a name within an expression only as a column
            if inner & {*known} or inner != named or node.find(exp.Query):
                return None
            for column in node.find_all(exp.Column):
                column.set("table", exp.to_identifier("untied"))
        elif fixed or (_aggregates(node, tree) and not _is_grouped(tree)):
            return None
        else:
            added += 1
            tree.append("expressions", _named(node, f"untied_{added}"))
            node.replace(exp.column(f"untied_{added}", "untied"))
    tree.set("order", None)
    rank = exp.Window(this=exp.DenseRank(), order=exp.Order(expressions=keys), over="OVER")
    exp.select("untied.*", _named(rank, _RANK)).from_(tree.subquery("untied", copy=False), copy=False)
    return added + 1


def _name_apart(tree: exp.Query) -> None:
    """Rename the later ones of output columns with equal names. A derived table needs different names."""
    taken: set[str] = set()
    for place, item in enumerate(tree.selects, 1):
        name = item.alias_or_name.lower()
        if name in taken and not item.is_star:
            item.replace(_named(item.unalias(), f"{name}_{place}"))
        taken.add(name)


def _output(node: exp.Expr, tree: exp.Query) -> exp.Identifier | None:
    """The name of the output column that a sort key is; it gets one if it has none of its own."""
    items: list[exp.Expr] = tree.selects
    if node.is_int:
        items = [] if tree.is_star else items[max(int(node.name) - 1, 0) : int(node.name)]
    elif isinstance(node, exp.Column) and not node.table:
        items = [item for item in items if item.alias_or_name.lower() == node.name.lower()]
    else:
        items = [item for item in items if item.unalias() == node]
    if not items:
        return None
    name = items[0].args.get("alias") or items[0].this
    if not isinstance(name, exp.Identifier):
        name = exp.to_identifier(f"untied_column_{tree.selects.index(items[0])}")
        items[0].replace(_named(items[0], name.name))
    return name


def _named(node: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=node.copy(), alias=exp.to_identifier(name))


def _is_grouped(tree: exp.Query) -> bool:
    return tree.args.get("group") is not None or any(_aggregates(item, tree) for item in tree.selects)


def _aggregates(node: exp.Expr, tree: exp.Query) -> bool:
    """Whether an expression holds an aggregate of this SELECT, rather than of a SELECT inside it."""
    return any(one.find_ancestor(exp.Select) in {None, tree} for one in node.find_all(exp.AggFunc))


def _deciding(keys: list[exp.Ordered]) -> list[exp.Ordered]:
    """The keys before the first random one. The keys after it only break ties of a random order."""
    return list(takewhile(lambda key: not is_volatile(key.this), keys))


def _cut(tree: exp.Expr) -> tuple[int | None, int] | None:
    """The outermost LIMIT and OFFSET; None if they are not plain numbers, or include ties."""
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


def tie_breaks(query: Query, schema: Schema, *, outermost: bool) -> list[str]:
    """Readings of the query that treat ties differently; none if nothing in it chooses among ties.

    A SELECT with LIMIT or OFFSET (the outermost only if asked) gets its output columns as further sort keys, ascending
    and descending: only these can differ between tied rows in a way that the rest of the query sees. ROW_NUMBER gets
    those of its SELECT that are no windows, and is read as RANK, which gives tied rows one number.
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
        if keys := _outputs(select, schema):
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


def _outputs(select: exp.Query, schema: Schema) -> list[exp.Expr]:
    """The output columns as sort keys; none if a star over something else than tables hides them."""
    if select.is_star:
        return _columns(select, schema)
    return [exp.Literal.number(place) for place in range(1, len(select.selects) + 1)]


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
