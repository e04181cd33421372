"""The structural similarity of two queries, a fast measure that needs no results.

It is the F1 of the multisets of the two trees' parts, each from one node down, and of the kinds and names of their
nodes. Spider's component matching (Yu et al., 2018, arXiv:1809.08887) does the same with the parts of clauses.
`sqlglot.diff` is more exact and takes a hundred times as long.
"""

from __future__ import annotations

from collections import Counter

from sqlglot import exp

from rlfactory_nl2sql.checks.canonical import NodeTexts, canonical_tree
from rlfactory_nl2sql.checks.naming import UnsureError
from rlfactory_nl2sql.checks.parsing import Query
from rlfactory_nl2sql.schema import Schema

_NO_SCHEMA = Schema(())


def similarity(gold: Query, prediction: Query, schema: Schema = _NO_SCHEMA) -> float:
    """The similarity in [0, 1], which is symmetric; 1 only for equal trees, such as those of equal canonical form.

    Without a schema, columns named without their table are compared by name alone.
    """
    try:
        trees = [canonical_tree(query, schema) for query in (gold, prediction)]
    except (UnsureError, RecursionError):  # one of them has no canonical form: both as they are written
        trees = [query.tree.copy() for query in (gold, prediction)]
    first, second = map(_components, trees)
    return 2 * (first & second).total() / (first.total() + second.total())


def _components(tree: exp.Expr) -> Counter[str]:
    whole = NodeTexts().of(tree)
    _show_tables(tree)
    texts = NodeTexts()
    parts = [node for node in tree.walk() if not isinstance(node, exp.Identifier)]
    return Counter([whole, *map(texts.of, parts), *(f"{type(part).__name__} {part.name.lower()}" for part in parts)])


def _show_tables(tree: exp.Expr) -> None:
    """Name each column's table rather than its alias, because an alias depends on all tables before it."""
    for select in reversed(list(tree.find_all(exp.Select))):  # inner ones first, whose aliases hide outer ones
        sources = [part.this for part in [select.args.get("from_"), *(select.args.get("joins") or [])] if part]
        names = {table.alias_or_name.lower(): table.name for table in sources if isinstance(table, exp.Table)}
        for column in select.find_all(exp.Column):
            if column.table.lower() in names:
                column.set("table", exp.to_identifier(names[column.table.lower()]))
