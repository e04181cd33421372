"""The literals of a gold query, each with the column that it is compared with.

A varied database holds values at and beside these constants. So it shows whether a prediction has the same boundaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from sqlglot import exp

from rlfactory_nl2sql.checks.parsing import Query
from rlfactory_nl2sql.checks.scopes import Origin, Scopes, bare
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
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


@dataclass(frozen=True, slots=True)
class Constant:
    """One literal, with the column of a base table that it is compared with, as the schema writes it."""

    table: str | None  # None for a count, and where it is not clear
    column: str | None  # likewise
    operator: str
    """How the column is compared with ``value``, read as *column operator value*: ``5 < x`` is ``>``.

    - ``=  <>  <  <=  >  >=`` comparisons (an IN list is one ``=`` for each item; BETWEEN is a ``>=`` and a ``<=``);
    - ``like``: ``value`` is the pattern, with its wildcards; ILIKE and NOT LIKE are ``like``, too;
    - ``function``: the literal is compared with an expression of this column, such as ``LOWER(x) = 'a'``,
      ``strftime('%Y', x) = '2010'``, ``SUM(x) > 5`` or ``x LIKE 'a' || '%'``. The literal is no value of the column;
    - ``count= count<> count< count<= count> count>=``: the number of rows or values in a group (HAVING COUNT(*) > 2);
    - ``null``, ``not null``: IS NULL and IS NOT NULL; ``value`` is empty;
    - ``limit``, ``offset``: bounds on the number of rows of this or a nested query.
    """
    value: str | int | float


def constants(query: Query, schema: Schema) -> tuple[Constant, ...]:
    """All distinct constants in the order of the tree, without literals that are only selected (SELECT 1)."""
    reader = _Reader(query, schema)
    return tuple(dict.fromkeys(constant for node in query.tree.walk() for constant in reader.read(node)))


TableColumn = tuple[str, str]
"""Of a base table, in lower case."""


@dataclass(frozen=True, slots=True)
class Uses:
    """What a query, or one of several, uses of the data."""

    constants: tuple[Constant, ...]
    tables: frozenset[str]  # and views, in lower case
    aggregated: frozenset[TableColumn]  # in aggregates, which leave out NULLs
    sorted_by: frozenset[TableColumn]  # keys of an ORDER BY with LIMIT
    compared: frozenset[tuple[TableColumn, TableColumn]]  # two columns with each other, both ways round

    def __or__(self, other: Uses) -> Uses:
        return Uses(
            tuple(dict.fromkeys((*self.constants, *other.constants))),
            self.tables | other.tables,
            self.aggregated | other.aggregated,
            self.sorted_by | other.sorted_by,
            self.compared | other.compared,
        )


def uses(query: Query, schema: Schema) -> Uses:
    """How a query uses the columns of base tables, and which tables it names."""
    scopes = Scopes(query, schema)

    def named(node: exp.Expr) -> Iterator[TableColumn]:
        origins = map(scopes.meaning, node.find_all(exp.Column))
        return ((one.table.lower(), one.column.lower()) for one in origins if isinstance(one, Origin))

    aggregates = query.tree.find_all(exp.AggFunc)
    cut = (node for node in query.tree.find_all(exp.Query) if node.args.get("limit") and node.args.get("order"))
    keys = (key.this for node in cut for key in node.args["order"].expressions)
    sides = ((one, other) for node in query.tree.walk() for one, _, other in _comparisons(node))
    pairs = {pair for one, other in sides for pair in product(named(one), named(other))}
    return Uses(
        constants(query, schema),
        query.tables,
        frozenset(column for node in aggregates for column in named(node)),
        frozenset(column for key in keys if isinstance(key, exp.Column) for column in named(key)),
        frozenset(each for pair in pairs if pair[0] != pair[1] for each in (pair, pair[::-1])),
    )


class _Reader:
    """Reads the constants of one query."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self._strings = query.dialect == "sqlite"  # a double-quoted name that SQLite does not know is a string
        self._scopes = Scopes(query, schema)

    def read(self, node: exp.Expr) -> Iterator[Constant]:
        """The constants of one comparison or LIMIT."""
        if isinstance(node, (exp.Limit, exp.Offset, exp.Fetch)):
            value = self._value(node.args.get("count") if isinstance(node, exp.Fetch) else node.expression)
            if isinstance(value, int):
                yield Constant(None, None, "offset" if isinstance(node, exp.Offset) else "limit", value)
        elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            origin = self._scopes.meaning(node.this)
            if isinstance(origin, Origin):
                yield _constant(origin, "not null" if _is_denied(node) else "null", "")
        for subject, operator, other in _comparisons(node):
            value = self._value(other)
            if value is not None:
                yield from self._about(subject, operator, value)
            elif not other.find(exp.Query) and all(map(self._is_string, other.find_all(exp.Column))):
                parts = (self._value(literal) for literal in other.find_all(exp.Literal))
                for part in (part for part in parts if part is not None):
                    yield from self._about(subject, "function", part)

    def _about(self, subject: exp.Expr, operator: str, value: str | float) -> Iterator[Constant]:
        """The constants for what a value is compared with."""
        meaning = self._scopes.meaning(subject)
        if meaning is None or isinstance(meaning, Origin):
            yield _constant(meaning, operator, value)
        elif isinstance(meaning, exp.Count) and operator != "function":
            yield Constant(None, None, f"count{operator}", value)
        else:
            origins = [self._scopes.meaning(column) for column in meaning.find_all(exp.Column)]
            known = [origin for origin in origins if isinstance(origin, Origin)]
            if known or not meaning.find(exp.Query):
                yield from (_constant(origin, "function", value) for origin in known or (None,))

    def _is_string(self, column: exp.Column) -> bool:
        named = column.this
        quoted = self._strings and isinstance(named, exp.Identifier) and named.quoted and not column.table
        return quoted and self._scopes.meaning(column) is None

    def _value(self, node: exp.Expr | None) -> str | int | float | None:
        """The value of a literal; None for anything else."""
        node = None if node is None else bare(node)
        if isinstance(node, exp.Neg):
            value = self._value(node.this)
            return -value if isinstance(value, (int, float)) else None
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.Column) and self._is_string(node):
            return node.name
        if not isinstance(node, exp.Literal):
            return None
        if node.is_string:
            return node.name
        try:
            return int(node.name) if node.name.isdigit() else float(node.name)
        except ValueError:  # thousands of digits, or a dialect's own notation
            return None


def _comparisons(node: exp.Expr) -> Iterator[tuple[exp.Expr, str, exp.Expr]]:
    """A comparison as it is written and the other way round, or those that BETWEEN, IN and CASE stand for."""
    if operator := _COMPARISONS.get(type(node)):
        yield node.this, operator, node.expression
        if operator in _MIRRORED:
            yield node.expression, _MIRRORED[operator], node.this
    elif isinstance(node, exp.Between):
        yield node.this, ">=", node.args["low"]
        yield node.this, "<=", node.args["high"]
    elif isinstance(node, exp.In):
        yield from ((node.this, "=", item) for item in node.expressions)
    elif isinstance(node, exp.Case) and node.this is not None:
        yield from ((node.this, "=", branch.this) for branch in node.args["ifs"])


def _is_denied(node: exp.Expr) -> bool:
    """Whether an odd number of NOTs stand directly before it."""
    around = node.parent
    return isinstance(around, (exp.Not, exp.Paren)) and _is_denied(around) != isinstance(around, exp.Not)


def _constant(meaning: Origin | exp.Expr | None, operator: str, value: str | float) -> Constant:
    if isinstance(meaning, Origin):
        return Constant(meaning.table, meaning.column, operator, value)
    return Constant(None, None, operator, value)
