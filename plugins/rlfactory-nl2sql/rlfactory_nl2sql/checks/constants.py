"""The literals of a gold query, each with the column that it is compared with.

A varied database holds values at and beside these constants. So it shows whether a prediction has the same boundaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from rlfactory_nl2sql.checks.parsing import Query
from rlfactory_nl2sql.checks.scopes import Match, Origin, Scopes
from rlfactory_nl2sql.schema import Schema

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NullSafeEQ: "=",
    exp.NEQ: "<>",
    exp.NullSafeNEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.Like: "like",
    exp.ILike: "like",
    exp.Glob: "glob",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_AGGREGATES: dict[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.AnonymousAggFunc: "sum",  # SQLite's TOTAL
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}


@dataclass(frozen=True, slots=True)
class Constant:
    """One literal, with the column of a base table that it is compared with, as the schema writes it."""

    table: str | None  # for COUNT(*) the one table whose rows are counted; None where it is not clear
    column: str | None  # None for COUNT(*), and where it is not clear
    operator: str
    """How the column is compared with ``value``, read as *column operator value*: ``5 < x`` is ``>``.

    - ``=  <>  <  <=  >  >=`` comparisons (an IN list is one ``=`` for each item; BETWEEN is a ``>=`` and a ``<=``);
    - ``like  glob``: ``value`` is the pattern, with its wildcards; ILIKE and NOT LIKE are ``like``, too;
    - ``function``: the literal is compared with an expression of this column, such as ``LOWER(x) = 'a'``,
      ``strftime('%Y', x) = '2010'``, ``x + 1 > 5`` or ``x LIKE 'a' || '%'``. The literal is no value of the column;
    - ``count= count<> count< count<= count> count>=``: the number of rows of a group (HAVING COUNT(*) > 2), or of
      values of ``column`` in it;
    - ``sum… avg… min… max…`` with a comparison behind, such as ``avg>``: the aggregate of this column (TOTAL is a sum);
    - ``null``, ``not null``: IS NULL and IS NOT NULL; ``value`` is empty;
    - ``limit``, ``offset``: bounds on the number of rows of this or a nested query.
    """
    value: str | int | float


def constants(query: Query, schema: Schema) -> tuple[Constant, ...]:
    """All distinct constants in the order of the tree, without literals that are only selected (SELECT 1)."""
    return tuple(dict.fromkeys(_Reader(query, schema).read()))


TableColumn = tuple[str, str]
"""Of a base table, in lower case."""


def aggregated(query: Query, schema: Schema) -> frozenset[TableColumn]:
    """The columns in aggregates, which leave out NULLs."""
    reader = _Reader(query, schema)
    columns = (column for node in query.tree.find_all(exp.AggFunc) for column in node.find_all(exp.Column))
    origins = [reader.origin(column) for column in columns]
    return frozenset((origin.table.lower(), origin.column.lower()) for origin in origins if origin is not None)


class _Reader:
    """Reads the constants of one query."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self.tree = query.tree
        self.scopes = Scopes(query, schema)

    def read(self) -> Iterator[Constant]:
        for node in self.tree.walk():
            if type(node) in _COMPARISONS:
                yield from self._comparison(node.this, _COMPARISONS[type(node)], node.expression)
            elif isinstance(node, exp.Between):
                yield from self._compared(node.this, ">=", node.args["low"])
                yield from self._compared(node.this, "<=", node.args["high"])
            elif isinstance(node, exp.In):
                for item in node.expressions:
                    yield from self._compared(node.this, "=", item)
            elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
                if isinstance(_bare(node.this), exp.Column):
                    yield from self._about(node.this, "not null" if _is_denied(node) else "null", "")
            elif isinstance(node, exp.Case) and node.this is not None:
                for branch in node.args["ifs"]:
                    yield from self._compared(node.this, "=", branch.this)
            elif isinstance(node, (exp.Limit, exp.Offset, exp.Fetch)):
                value = self._value(node.args.get("count") if isinstance(node, exp.Fetch) else node.expression)
                if isinstance(value, int):
                    yield Constant(None, None, "offset" if isinstance(node, exp.Offset) else "limit", value)

    def origin(self, column: exp.Column) -> Origin | None:
        """The base table's column, where it is one."""
        return self.scopes.find(column).origin

    def _comparison(self, left: exp.Expr, operator: str, right: exp.Expr) -> Iterator[Constant]:
        if self._value(left) is None:
            yield from self._compared(left, operator, right)
        elif operator in _MIRRORED:
            yield from self._compared(right, _MIRRORED[operator], left)

    def _compared(self, subject: exp.Expr, operator: str, other: exp.Expr) -> Iterator[Constant]:
        """``subject operator other``, where ``other`` is a literal, or made of literals."""
        value = self._value(other)
        if value is None:
            if other.find(exp.Query) or any(not self.scopes.find(column).text for column in other.find_all(exp.Column)):
                return
            for literal in other.find_all(exp.Literal):
                part = self._value(literal)
                if part is not None:
                    yield from self._about(subject, "function", part)
            return
        yield from self._about(subject, operator, value)

    def _about(self, subject: exp.Expr, operator: str, value: str | float, hops: int = 4) -> Iterator[Constant]:
        """The constants that a subject is compared with. ``hops`` bounds the search, because columns can be
        circular."""
        subject = _bare(subject)
        if isinstance(subject, exp.Column):
            match = self.scopes.find(subject)
            if match.made is None or not hops:
                yield _constant(match, operator, value)
            else:
                yield from self._about(match.made, operator, value, hops - 1)
            return
        if type(subject) in _AGGREGATES and operator != "function":
            operator = _AGGREGATES[type(subject)] + operator
            inner = subject.expressions[0] if isinstance(subject, exp.AnonymousAggFunc) else subject.this
            inner = inner.expressions[0] if isinstance(inner, exp.Distinct) else inner
            inner = None if inner is None else _bare(inner)
            if isinstance(inner, exp.Column):
                yield _constant(self.scopes.find(inner), operator, value)
            else:
                yield Constant(self._only_table(subject), None, operator, value)
            return
        columns = [column for column in subject.find_all(exp.Column) if self.scopes.find(column).column]
        if not columns and not subject.find(exp.Query):
            yield Constant(None, None, "function", value)
        for column in columns:
            yield _constant(self.scopes.find(column), "function", value)

    def _only_table(self, aggregate: exp.Expr) -> str | None:
        """The one base table of the SELECT that an aggregate is in."""
        sources = self.scopes.sources(aggregate.find_ancestor(exp.Select))
        return sources[0].table.name if len(sources) == 1 and sources[0].table else None

    def _value(self, node: exp.Expr | None) -> str | int | float | None:
        """The value of a literal; None for anything else."""
        node = None if node is None else _bare(node)
        if isinstance(node, exp.Neg):
            value = self._value(node.this)
            return -value if isinstance(value, (int, float)) else None
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.Column) and self.scopes.find(node).text:
            return node.name
        if not isinstance(node, exp.Literal):
            return None
        if node.is_string:
            return node.name
        try:
            return int(node.name) if node.name.isdigit() else float(node.name)
        except ValueError:  # thousands of digits, or a dialect's own notation
            return None


def _bare(node: exp.Expr) -> exp.Expr:
    """The expression without brackets, casts and collations."""
    while isinstance(node, (exp.Paren, exp.Cast, exp.Collate)):
        node = node.this
    return node


def _is_denied(node: exp.Expr) -> bool:
    """Whether an odd number of NOTs stand directly before it."""
    around = node.parent
    return isinstance(around, (exp.Not, exp.Paren)) and _is_denied(around) != isinstance(around, exp.Not)


def _constant(match: Match, operator: str, value: str | float) -> Constant:
    if match.origin is None:
        return Constant(None, None, operator, value)
    return Constant(match.origin.table, match.origin.column, operator, value)
