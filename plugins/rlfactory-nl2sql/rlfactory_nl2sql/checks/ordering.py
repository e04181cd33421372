"""The order of a query's rows: whether it guarantees one, and which rows its sort keys leave tied.

``SELECT name FROM singer ORDER BY age LIMIT 3`` has several right answers if singers have the same age. `untie` makes a
query that returns all rows in order, each with the database's own rank of its age (``DENSE_RANK``) as an extra column.
Collations, NULLs and signed zeros then tie exactly as they do in ORDER BY. sqlglot writes the new tree as text, which
counts only if it is parsed back to the same tree. `tie_breaks` finds whether ties within the query matter.
"""

from __future__ import annotations

import re
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
    keys: int  # number of extra columns at the end: 1, or 0 if the query has no order
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
    bare = tree.copy()
    bare.set("limit", None)
    bare.set("offset", None)
    keys = _deciding(sort_keys(bare))
    ranked: exp.Expr | None = bare
    if keys and isinstance(bare, exp.Select) and not any(_sorts_by_window(key, bare) for key in keys):
        ranked = _extended(bare, keys, query.dialect, schema)
    elif keys:
        ranked = _wrapped(bare, keys)
    sql = None if ranked is None else written(ranked, query.dialect)
    if sql is not None and keys and limit is not None and _can_be_table(tree, query.dialect):
        sql = f"SELECT * FROM ({sql}) AS untied_all WHERE {_RANK} <= {limit + offset} ORDER BY {_RANK}"  # noqa: S608
    return None if sql is None else Untied(sql, 1 if keys else 0, limit, offset)


def _extended(select: exp.Select, keys: list[exp.Ordered], dialect: str, schema: Schema) -> exp.Expr | None:
    """The query with the rank behind its own columns."""
    if select.args.get("operation_modifiers") or not _allows_more_columns(select, keys):
        return None
    resolved = [one for key in keys if (one := _resolved(key, select, dialect, schema))]
    if len(resolved) < len(keys):
        return None
    return select.select(_rank(resolved), copy=False)


def _wrapped(tree: exp.Query, keys: list[exp.Ordered]) -> exp.Expr | None:
    """The query as a derived table, ranked by its output columns. A set operation can be sorted only by these."""
    names = [name.lower() for name in tree.named_selects]
    ranked = [key.copy() for key in keys]
    for key in ranked:
        column = key.this.this if isinstance(key.this, exp.Collate) else key.this
        name: exp.Expr | None = None
        if column.is_int and not tree.is_star and 0 < int(column.name) <= len(names):
            item = tree.selects[int(column.name) - 1]
            name = item.args.get("alias") or item.this
        elif isinstance(column, exp.Column) and not column.table and (tree.is_star or column.name.lower() in names):
            name = column.this
        if not isinstance(name, exp.Identifier) or names.count(name.name.lower()) > 1:
            return None
        column.replace(exp.column(name.copy(), "untied"))
    tree.set("order", None)
    return exp.select("untied.*", _rank(ranked)).from_(tree.subquery("untied", copy=False)).order_by(_RANK)


def _rank(keys: list[exp.Ordered]) -> exp.Expr:
    order = exp.Order(expressions=[key.copy() for key in keys])
    return exp.alias_(exp.Window(this=exp.DenseRank(), order=order, over="OVER"), _RANK)


def _resolved(key: exp.Ordered, select: exp.Select, dialect: str, schema: Schema) -> exp.Ordered | None:
    """A sort key with output columns replaced by their expressions, because only ORDER BY can use their names; None if
    it is not certain what is meant."""
    key = key.copy()
    sorted_by = key.this
    if isinstance(sorted_by, exp.Var):
        return None  # ORDER BY ALL
    if isinstance(sorted_by, exp.Paren) and isinstance(sorted_by.unnest(), exp.Literal):
        return None  # ORDER BY (1) is a place for some databases, and a constant for others
    if sorted_by.is_int:
        before = select.expressions[: int(sorted_by.name)]
        if len(before) != int(sorted_by.name) or not before or any(item.is_star for item in before):
            return None
        sorted_by.replace(_meaning(before[-1]))
        return key
    meanings = {item.alias.lower(): item for item in select.expressions if isinstance(item, exp.Alias)}
    alone = isinstance(sorted_by, exp.Column)
    for column in list(key.find_all(exp.Column)):
        name = column.name.lower()
        if column.table or name not in meanings or (dialect == "postgres" and not alone):
            continue  # PostgreSQL reads a name within an expression only as a column
        known = any(name == one.name.lower() for table in schema.tables for one in table.columns)
        if not alone and (known or key.find(exp.Query)):
            return None
        column.replace(_meaning(meanings[name]))
    return key


def _meaning(item: exp.Expr) -> exp.Expr:
    """An output column's expression, without its name, as one operand."""
    meaning = item.unalias().copy()
    return meaning if isinstance(meaning, exp.Subquery) else exp.Paren(this=meaning)


def _allows_more_columns(tree: exp.Select, keys: list[exp.Ordered]) -> bool:
    """Whether the rank can be added as a column without changing the rows."""
    distinct = tree.args.get("distinct")
    if distinct is not None:
        outputs = [item.unalias() for item in tree.expressions]
        names = {item.alias.lower() for item in tree.expressions if isinstance(item, exp.Alias)}
        stars = any(isinstance(item, exp.Star) for item in outputs)
        for key in keys:
            column = key.this
            named = isinstance(column, exp.Column) and (stars or (not column.table and column.name.lower() in names))
            if not named and column not in outputs and not column.is_int:
                return False
        return distinct.args.get("on") is None
    grouped = tree.args.get("group") is not None or any(_aggregates(item, tree) for item in tree.expressions)
    return grouped or not any(_aggregates(key, tree) for key in keys)


def _aggregates(node: exp.Expr, tree: exp.Select) -> bool:
    """Whether an expression holds an aggregate of this SELECT, rather than of a SELECT inside it."""
    return any(one.find_ancestor(exp.Select) is tree for one in node.find_all(exp.AggFunc))


def _sorts_by_window(key: exp.Ordered, tree: exp.Query) -> bool:
    """Whether a key is, or names, a window function. Another window function cannot sort by it."""
    if key.find(exp.Window):
        return True
    names = {column.name.lower() for column in key.find_all(exp.Column) if not column.table}
    ordinal = int(key.this.name) - 1 if key.this.is_int else -1
    return any(
        item.find(exp.Window) is not None
        for number, item in enumerate(tree.selects)
        if number == ordinal or item.alias_or_name.lower() in names
    )


def _deciding(keys: list[exp.Ordered]) -> list[exp.Ordered]:
    """The keys before the first random one. The keys after it only break ties of a random order."""
    return list(takewhile(lambda key: not is_volatile(key.this), keys))


def _cut(tree: exp.Expr) -> tuple[int | None, int] | None:
    """The outermost LIMIT and OFFSET; None if they are not plain numbers, or include ties."""
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    most: int | None = None
    if limit is not None:
        options = limit.args.get("limit_options")
        if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
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


def _can_be_table(tree: exp.Query, dialect: str) -> bool:
    """Whether a SELECT can be used in FROM. MySQL requires different names of its columns."""
    names = [name.lower() for name in tree.named_selects]
    return dialect != "mysql" or not (tree.is_star or "" in names or len(set(names)) < len(names))


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
