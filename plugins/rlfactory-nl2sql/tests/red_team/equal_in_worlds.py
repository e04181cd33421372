"""Mutations of a generated world's query that mean the same as it, by what its schema declares.

The rules read the query and the schema; whether the verifier tells the two apart is not asked.
"""

from __future__ import annotations

from rlfactory_nl2sql.schema import Schema
from sqlglot import exp, parse_one


def reason_for_equal_in_world(gold: str, how: str, schema: Schema) -> str | None:
    """Why the mutation ``how`` (see `mutations`) of ``gold`` means the same; None where it does not."""
    tree = parse_one(gold, dialect="sqlite")
    assert isinstance(tree, exp.Select)
    if how == "DISTINCT added" and _one_row_at_most(tree):
        return "there is one row at most: none comes twice"
    if how == "DISTINCT added" and _shows_its_groups(tree):
        return "all that the rows are grouped by is shown: none comes twice"
    if how == "LIMIT 1 added" and tree.args.get("distinct") and _shows_one_value(tree):
        return "the only column that is shown is held to one value, and shown once"
    if how.startswith("JOIN ") and how.endswith(" to LEFT JOIN") and _always_refers(tree, schema):
        return "each row refers to one: an outer join adds nothing"
    if how.startswith("counts distinct ") and _counts_a_key(tree, how.removeprefix("counts distinct "), schema):
        return "a key is counted that comes in one row each"
    return None


def _one_row_at_most(tree: exp.Select) -> bool:
    limit = tree.args.get("limit")
    return limit is not None and limit.expression.name == "1"


def _shows_its_groups(tree: exp.Select) -> bool:
    group = tree.args.get("group")
    return group is not None and all(key in tree.expressions for key in group.expressions)


def _shows_one_value(tree: exp.Select) -> bool:
    """``SELECT DISTINCT c … WHERE c = 'x'``, perhaps with further conditions."""
    where = tree.args.get("where")
    if where is None or len(tree.expressions) != 1:
        return False
    needed = where.this.flatten() if isinstance(where.this, exp.And) else [where.this]
    return any(isinstance(one, exp.EQ) and one.left == tree.expressions[0] for one in needed)


def _always_refers(tree: exp.Select, schema: Schema) -> bool:
    """``child JOIN parent ON key = parent.id``, where the key is a foreign one and not NULL."""
    child = schema.table(tree.args["from_"].this.name)
    (join,) = tree.args["joins"]
    on = join.args["on"]
    if child is None or not isinstance(on, exp.EQ):
        return False
    required = {column.name for column in child.columns if not column.nullable}
    return any(
        (on.left.name,) == key.columns
        and on.left.name in required
        and join.this.name == key.target
        and on.right == exp.column(key.target_columns[0], key.target)
        for key in child.foreign_keys
    )


def _counts_a_key(tree: exp.Select, counted: str, schema: Schema) -> bool:
    """The first table's primary key, and each row of it comes once: no table is joined, or one that it refers to."""
    table = schema.table(tree.args["from_"].this.name)
    if table is None or counted != f"{table.name}.{table.primary_key[0]}":
        return False
    return not tree.args.get("joins") or _always_refers(tree, schema)
