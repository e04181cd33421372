"""The canonical form of a query: one text for queries that differ only in form.

Two queries with the same canonical text mean the same in every database of the schema. Two queries that mean the same
may still have different canonical texts.
"""

from __future__ import annotations

from functools import reduce

from sqlglot import TokenType, exp

from rlfactory_nl2sql.checks.naming import UnsureError, with_neutral_names
from rlfactory_nl2sql.checks.ordering import is_volatile
from rlfactory_nl2sql.checks.parsing import Query, statement, written
from rlfactory_nl2sql.schema import Schema

_FLIPPED: dict[type[exp.Expr], type[exp.Binary]] = {exp.GT: exp.LT, exp.GTE: exp.LTE}
_SYMMETRIC = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
_OPERATORS = (exp.Binary, exp.Unary, exp.Between, exp.In)


def canonical(query: Query, schema: Schema) -> str:
    """The canonical text. It is SQL of the query's dialect, and its own canonical text.

    It ignores layout, comments, letter case, quoting, brackets, names given with AS, the order of AND, OR, GROUP BY and
    IN lists, the sides of a comparison, BETWEEN, and where the conditions of inner joins stand.
    """
    try:
        return written(canonical_tree(query, schema), query.dialect) or _plain(query)
    except (UnsureError, RecursionError):
        return _plain(query)


def canonical_tree(query: Query, schema: Schema) -> exp.Expr:
    """The tree behind the text; raises `UnsureError` if the query's names cannot be resolved here."""
    tree = with_neutral_names(query, schema)
    for brackets in list(tree.find_all(exp.Paren)):
        brackets.replace(brackets.this)
    _unwrap(tree)
    for select in tree.find_all(exp.Select):
        _join_by_where(select)
    texts, collated = NodeTexts(), any(table.collated for table in schema.tables)
    for node in reversed(list(tree.walk())):
        if not _is_one_sided(node, collated):
            _normalise(node, texts)
    for node in list(tree.walk()):
        _bracket(node)
    return tree


def _plain(query: Query) -> str:
    """The query's words with one space between them."""
    words = []
    for token in statement(query.sql, query.dialect):
        free = token.token_type in (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER)
        text = query.sql[token.start : token.end + 1]
        words.append(text if free or not text.isalpha() else text.upper())
    return " ".join(words)


def _unwrap(tree: exp.Expr) -> None:
    """Remove redundant brackets around parts of a set operation."""
    for operation in list(tree.find_all(exp.SetOperation)):
        for side in (operation.this, operation.expression):
            inner = side.this if isinstance(side, exp.Subquery) and side.is_wrapper else None
            if isinstance(inner, exp.Select) and not {"order", "limit", "offset", "with_"} & set(_given(inner)):
                side.replace(inner)


def _join_by_where(select: exp.Select) -> None:
    """The conditions of inner joins as part of WHERE, unless an outer join is made on top of one side."""
    joins: list[exp.Join] = select.args.get("joins") or []
    if any(join.side in ("RIGHT", "FULL") and any(not other.side for other in joins) for join in joins):
        # sqlglot reads "a, b RIGHT JOIN c" as it reads "a CROSS JOIN b RIGHT JOIN c", and they differ.
        raise UnsureError
    conditions: list[exp.Expr] = []
    plain = all(join.side in ("", "LEFT") and join.kind in ("", "INNER", "CROSS", "OUTER") for join in joins)
    for join in joins:
        if join.side:
            if join.kind == "OUTER":
                join.set("kind", None)
        elif plain and not join.method and not join.args.get("using") and set(_given(join)) <= {"this", "kind", "on"}:
            condition = join.args.get("on")
            if condition is not None:
                conditions.append(condition.pop())
            join.set("kind", "CROSS")
        elif join.kind == "INNER":
            join.set("kind", None)
    if conditions:
        where = select.args.get("where")
        select.set(
            "where", exp.Where(this=exp.and_(*conditions, *([where.this] if where else []), copy=False, wrap=False))
        )


def _given(node: exp.Expr) -> list[str]:
    return [name for name, value in node.args.items() if value]


def _is_one_sided(node: exp.Expr, collated: bool) -> bool:
    """Whether it is a comparison for which SQLite takes the left side's collation, and the right may have another."""
    if not isinstance(node, (exp.Between, *_FLIPPED, *_SYMMETRIC)) or not (collated or node.find(exp.Collate)):
        return False
    sides = node.this, node.args["low"] if isinstance(node, exp.Between) else node.expression
    return all(side.find(exp.Column, exp.Collate) for side in sides)


def _normalise(node: exp.Expr, texts: NodeTexts) -> None:
    """Normalise one node. The nodes below it are done already."""
    if isinstance(node, exp.Between) and not node.args.get("symmetric") and not is_volatile(node.this):
        low = exp.LTE(this=node.args["low"], expression=node.this.copy())
        high = exp.LTE(this=node.this, expression=node.args["high"])
        _replace_connector(node, exp.And(this=low, expression=high), texts)
    elif isinstance(node, tuple(_FLIPPED)):
        node.replace(_FLIPPED[type(node)](this=node.expression, expression=node.this))
    elif isinstance(node, _SYMMETRIC):
        if texts.of(node.expression) < texts.of(node.this):
            left, right = node.this, node.expression
            node.set("this", right)
            node.set("expression", left)
    elif isinstance(node, (exp.And, exp.Or)) and type(node.parent) is not type(node):
        _replace_connector(node, node, texts)
    elif _is_unordered_list(node):
        node.set("expressions", sorted(node.expressions, key=texts.of))
    elif isinstance(node, exp.Anonymous) and isinstance(node.this, str):
        node.set("this", node.this.upper())
    elif isinstance(node, exp.Ordered) and not node.args.get("desc"):
        node.set("desc", None)


def _is_unordered_list(node: exp.Expr) -> bool:
    return (
        isinstance(node, (exp.In, exp.Group))
        and bool(node.expressions)
        and set(_given(node)) <= {"this", "expressions"}
    )


def _replace_connector(node: exp.Expr, connector: exp.Connector, texts: NodeTexts) -> None:
    """Replace ``node`` with a chain of AND or OR with sorted operands."""
    kind = type(connector)
    if type(node.parent) is kind:
        node.replace(connector)  # part of a longer chain, which is sorted at its top
        return
    operands = sorted(connector.flatten(unnest=False), key=texts.of)
    node.replace(reduce(lambda chain, operand: kind(this=chain, expression=operand), operands))


class NodeTexts:
    """A text for each node, computed once, for sorting and counting. Only equal nodes have equal texts."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[exp.Expr, str]] = {}

    def of(self, node: exp.Expr) -> str:
        if id(node) not in self._known:
            parts = [type(node).__name__]
            for name, value in sorted(node.args.items()):
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, exp.Expr):
                        parts.append(f"{name}={self.of(part)}")
                    elif part:
                        parts.append(f"{name}:{part}")
            self._known[id(node)] = node, f"({' '.join(parts)})"  # keeps the node alive, so that its id is not reused
        return self._known[id(node)][1]


def _bracket(node: exp.Expr) -> None:
    """Put brackets around an operator that is an operand, unless both belong to one chain of AND or of OR."""
    parent = node.parent
    if not isinstance(node, _OPERATORS) or isinstance(node, exp.Paren) or not isinstance(parent, _OPERATORS):
        return
    chained = isinstance(node, exp.Connector) and type(node) is type(parent) and node.arg_key == "this"
    if not isinstance(parent, (exp.Paren, exp.Escape)) and not isinstance(node, exp.Dot) and not chained:
        node.replace(brackets := exp.Paren())
        brackets.set("this", node)
