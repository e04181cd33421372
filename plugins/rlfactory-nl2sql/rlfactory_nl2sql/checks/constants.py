"""The literals of a gold query, each with the column that it is compared with.

A varied database holds values at and beside these constants. So it shows whether a prediction has the same boundaries.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from itertools import product

from sqlglot import ErrorLevel, exp

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
    exp.Glob: "glob",
}
_OPERATORS = {"glob": exp.Glob, "like": exp.Like} | {text: node for node, text in reversed(_COMPARISONS.items())}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


COLUMN = '"\ue000"'
"""The column's name in a `Test`."""
_MOST_NODES = 200  # of a test
_MOST_NAMES = 50  # in it, and in what they stand for


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison of an expression of one column with an expression without columns, as SQL of SQLite."""

    holds: str  # the comparison with COLUMN, or its denial if NOT stands before it
    literals: tuple[str | int | float, ...]  # in all of it


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
    - ``glob``: as ``like``, with the wildcards of GLOB;
    - ``count= count<> count< count<= count> count>=``: the number of rows or values in a group (HAVING COUNT(*) > 2);
    - ``null``, ``not null``: IS NULL and IS NOT NULL; ``value`` is empty;
    - ``limit``, ``offset``: bounds on the number of rows of this or a nested query.
    """
    value: str | int | float
    test: Test | None = None  # of a shaped column, if it is the only one in the comparison, which has no aggregate


TableColumn = tuple[str, str]
"""Of a base table, in lower case."""


def constants(query: Query, schema: Schema, shaped: Container[TableColumn] = ()) -> tuple[Constant, ...]:
    """All distinct constants in the order of the tree, without literals that are only selected (SELECT 1).

    Those of the ``shaped`` columns have tests.
    """
    reader = _Reader(query, schema, shaped)
    return tuple(dict.fromkeys(constant for node in query.tree.walk() for constant in reader.read(node)))


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


def uses(query: Query, schema: Schema, shaped: Container[TableColumn] = ()) -> Uses:
    """How a query uses the columns of base tables, and which tables it names; ``shaped``: see `constants`."""
    scopes = Scopes(query, schema)

    def named(node: exp.Expr) -> Iterator[TableColumn]:
        origins = map(scopes.meaning, node.find_all(exp.Column))
        return ((one.table.lower(), one.column.lower()) for one in origins if isinstance(one, Origin))

    aggregates = query.tree.find_all(exp.AggFunc)
    cut = (node for node in query.tree.find_all(exp.Query) if node.args.get("limit") and node.args.get("order"))
    keys = (key.this for node in cut for key in node.args["order"].expressions)
    sides = ((one, other) for node in query.tree.walk() for one, _, other in comparisons(node))
    pairs = {pair for one, other in sides for pair in product(named(one), named(other))}
    return Uses(
        constants(query, schema, shaped),
        query.tables,
        frozenset(column for node in aggregates for column in named(node)),
        frozenset(column for key in keys if isinstance(key, exp.Column) for column in named(key)),
        frozenset(each for pair in pairs if pair[0] != pair[1] for each in (pair, pair[::-1])),
    )


class _Reader:
    """Reads the constants of one query."""

    def __init__(self, query: Query, schema: Schema, shaped: Container[TableColumn]) -> None:
        self._shaped = shaped
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
        for subject, operator, other in comparisons(node):
            value = self._value(other)
            if value is not None:
                found = [*self._about(subject, operator, value)]
            elif not other.find(exp.Query) and all(map(self._is_string, other.find_all(exp.Column))):
                found = [each for part in self._literals(other) for each in self._about(subject, "function", part)]
            else:
                continue
            if any(one.table and (one.table.lower(), (one.column or "").lower()) in self._shaped for one in found):
                test = self._test(node, subject, operator, other)
                found = [replace(one, test=test) for one in found]
            yield from found

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

    def _test(self, node: exp.Expr, subject: exp.Expr, operator: str, other: exp.Expr) -> Test | None:
        found: list[Origin | None] = []
        sides = [self._inlined(side, found) for side in (subject, other)]
        if None in sides or len({*found} - {None}) != 1:
            return None
        holds: exp.Expr = _OPERATORS[operator](this=sides[0], expression=sides[1])
        if isinstance(node.parent, exp.Escape):
            holds, node = exp.Escape(this=holds, expression=node.parent.expression.copy()), node.parent
        if holds.find(exp.AggFunc, exp.Window, exp.Query) or len(list(holds.walk())) > _MOST_NODES:
            return None
        whole = holds.sql("sqlite", unsupported_level=ErrorLevel.IGNORE)
        literals = dict.fromkeys(self._literals(holds))
        return Test(f"NOT ({whole})" if _is_denied(node) else whole, tuple(literals))

    def _inlined(self, node: exp.Expr, found: list[Origin | None]) -> exp.Expr | None:
        """A copy in which each column of a table is called COLUMN, and other names are what they stand for.

        ``found`` gets what each name is, a column or something else. None if there are many: names may go in rings.
        """
        copy = node.copy()
        for column, copied in zip(list(node.find_all(exp.Column)), list(copy.find_all(exp.Column)), strict=True):
            source = self._scopes.source(column)
            found.append(source if isinstance(source, Origin) else None)
            new: exp.Expr | None = None
            if len(found) > _MOST_NAMES:
                return None
            if isinstance(source, Origin):
                new = exp.column(COLUMN.strip('"'), quoted=True)
            elif source is not None:
                inner = self._inlined(source, found)
                new = inner and exp.Paren(this=inner)
            elif self._is_string(column):
                new = exp.Literal.string(column.name)
            if new is None:
                return None
            if copied is copy:
                copy = new
            else:
                copied.replace(new)
        return copy

    def _literals(self, node: exp.Expr) -> list[str | int | float]:
        values = (self._value(literal) for literal in node.find_all(exp.Literal))
        return [value for value in values if value is not None]

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


def comparisons(node: exp.Expr) -> Iterator[tuple[exp.Expr, str, exp.Expr]]:
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
