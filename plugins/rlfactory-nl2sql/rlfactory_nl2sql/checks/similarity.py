"""The structural similarity of two queries, a fast measure that needs no results.

It is the F1 of the multisets of the two trees' parts: all subtrees, and the kinds and names of all nodes. Spider's
component matching (Yu et al., 2018, arXiv:1809.08887) does the same with the parts of clauses. `sqlglot.diff` is more
exact and takes a hundred times as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from sqlglot import exp

from rlfactory_nl2sql.checks.parsing import Query


def similarity(gold: Query, prediction: Query) -> float:
    """The similarity in [0, 1], which is symmetric; 1 for queries that differ only in letter case and aliases."""
    first, second = _parts(gold), _parts(prediction)
    return 2 * (first & second).total() / (first.total() + second.total())


def _parts(query: Query) -> Counter[Hashable]:
    tree = query.tree.copy()
    _show_tables(tree)
    nodes = [node for node in tree.walk() if not isinstance(node, (exp.Identifier, exp.TableAlias))]
    return Counter([*map(hash, nodes), *((type(node), node.name.lower()) for node in nodes)])


def _show_tables(tree: exp.Expr) -> None:
    """Replace aliases: columns of joins have their table's name, unless it is joined with itself."""
    for select in reversed(list(tree.find_all(exp.Select))):  # inner ones first, whose aliases hide outer ones
        sources = [part.this for part in [select.args.get("from_"), *(select.args.get("joins") or [])] if part]
        tables = [source for source in sources if isinstance(source, exp.Table)]
        tables = [table for table in tables if [one.name for one in tables].count(table.name) == 1]
        names = {table.alias_or_name.lower(): table.name.lower() for table in tables}
        for column in select.find_all(exp.Column):
            if name := names.get(column.table.lower()):
                column.set("table", exp.to_identifier(name) if len(sources) > 1 else None)
        for table in tables:
            table.set("alias", None)
        for item in select.expressions:
            item.replace(item.unalias())
