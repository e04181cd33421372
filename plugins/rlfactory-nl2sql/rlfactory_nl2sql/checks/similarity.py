"""The structural similarity of two queries, a fast measure that needs no results.

It is the F1 of the two queries' components, as in Spider's component matching (Yu et al., 2018, arXiv:1809.08887), over
multisets and with more kinds of components. `sqlglot.diff` is more exact and takes a hundred times as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

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
    trees = _comparable(gold, prediction, schema)
    first, second = (_components(tree) for tree in trees)
    return 2 * (first & second).total() / (first.total() + second.total())


def _comparable(gold: Query, prediction: Query, schema: Schema) -> list[exp.Expr]:
    """Both trees in canonical form. If one of them has none, both as they are written."""
    try:
        return [canonical_tree(query, schema) for query in (gold, prediction)]
    except (UnsureError, RecursionError):
        return [query.tree.copy() for query in (gold, prediction)]


def _components(tree: exp.Expr) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter([("whole", NodeTexts().of(tree))])
    _show_tables(tree)
    texts = NodeTexts()
    for node in tree.walk():
        found.update(_of_clause(node, texts))
        found.update(_of_part(node))
    return found


def _show_tables(tree: exp.Expr) -> None:
    """Name each column's table rather than its alias, because an alias depends on all tables before it."""
    for select in reversed(list(tree.find_all(exp.Select))):  # inner ones first, whose aliases hide outer ones
        sources = [part.this for part in [select.args.get("from_"), *(select.args.get("joins") or [])] if part]
        names = {table.alias_or_name.lower(): table.name for table in sources if isinstance(table, exp.Table)}
        for column in select.find_all(exp.Column):
            if column.table.lower() in names:
                column.set("table", exp.to_identifier(names[column.table.lower()]))


def _of_clause(node: exp.Expr, texts: NodeTexts) -> Iterator[tuple[str, ...]]:
    """The exact parts of a clause, each also with its place if the order matters."""
    kind = type(node).__name__
    if isinstance(node, (exp.Limit, exp.Offset, exp.Fetch)):
        yield kind, texts.of(node)
    elif isinstance(node, exp.SetOperation):
        yield kind, str(bool(node.args.get("distinct")))
    elif isinstance(node, exp.Join):
        yield kind, node.side, node.kind, node.method
    elif isinstance(node, (exp.Where, exp.Having)):
        for part in node.this.flatten() if isinstance(node.this, exp.And) else [node.this]:
            yield kind, texts.of(part)
    elif isinstance(node, (exp.Select, exp.Group, exp.Order)):
        if node.args.get("distinct"):
            yield kind, "distinct"
        for place, part in enumerate(node.expressions):
            yield kind, texts.of(part)
            if not isinstance(node, exp.Group):
                yield kind, texts.of(part), str(place)


def _of_part(node: exp.Expr) -> Iterator[tuple[str, ...]]:
    """The name or kind of one node, with its clause."""
    kind = type(node).__name__
    if isinstance(node, exp.Column):
        yield _clause(node), kind, node.table.lower(), node.name.lower()
    elif isinstance(node, (exp.Table, exp.Literal)):
        yield kind, node.name
    elif isinstance(node, (exp.Func, exp.Predicate, exp.Window, exp.Star)):
        yield _clause(node), kind, node.name if isinstance(node, exp.Anonymous) else ""


def _clause(node: exp.Expr) -> str:
    clause = node.find_ancestor(exp.Where, exp.Having, exp.Group, exp.Order, exp.Join, exp.Select)
    return type(clause).__name__
