"""Whether a query guarantees an order of its rows: only the outermost ORDER BY does."""

from __future__ import annotations

import re

from sqlglot import exp

from rlfactory_nl2sql.checks.parsing import Query

_VOLATILE = (exp.Rand, exp.Randn, exp.Uuid)
_VOLATILE_NAME = re.compile(
    "random|randomblob|gen_random_uuid|uuidv?[0-9]?|uuid_short|nextval|clock_timestamp", re.IGNORECASE
)


def is_ordered(query: Query) -> bool:
    """Whether the outermost ORDER BY has a key that can differ between rows.

    An ORDER BY in a subquery, a CTE, a window or an aggregate does not count.
    """
    keys = sort_keys(query.tree)
    for key in keys:
        if is_volatile(key.this):
            return False  # later keys only break ties of a random order
        if not _is_constant(key.this):
            return True
    return False


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
