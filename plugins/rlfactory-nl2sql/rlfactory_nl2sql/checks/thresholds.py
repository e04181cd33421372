"""Conditions of a query on groups (``HAVING COUNT(*) > 30``), each with a query that measures these groups.

A varied database gets groups just below and just above each threshold. So it shows whether a prediction counts the same
rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from rlfactory_nl2sql.checks.constants import comparisons
from rlfactory_nl2sql.checks.parsing import Query
from rlfactory_nl2sql.checks.scopes import Origin, Scopes, bare
from rlfactory_nl2sql.schema import Schema

_RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank)
_ORDERS = frozenset({"=", "<>", "<", "<=", ">", ">="})


@dataclass(frozen=True, slots=True)
class Threshold:
    """A comparison of an aggregate: *left operator right*."""

    measure: str  # SQL of SQLite: the columns that identify a group, then left and right
    keys: tuple[Origin | None, ...]  # what identifies a group; None for an expression; empty for a single group
    operator: str
    tables: tuple[str, ...]  # base tables whose rows are aggregated, as the schema writes them
    arguments: tuple[Origin, ...]  # of the aggregates
    fixed: bool  # whether both sides depend on the group's own rows only


def thresholds(query: Query, schema: Schema) -> tuple[Threshold, ...]:
    """The thresholds of a query, without those whose groups cannot be measured by themselves."""
    reader = _Reader(query, schema)
    return tuple(dict.fromkeys(one for node in query.tree.walk() for one in reader.read(node)))


class _Reader:
    """Reads the thresholds of one query."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self._scopes = Scopes(query, schema)
        self._tables = {table.name.lower(): table for table in schema.tables}

    def read(self, node: exp.Expr) -> Iterator[Threshold]:
        """The thresholds of one comparison or EXISTS."""
        seen: set[frozenset[int]] = set()
        for subject, operator, other in comparisons(node):
            found = self._aggregate(bare(subject)) if operator in _ORDERS else None
            if found is not None and (pair := frozenset((id(subject), id(other)))) not in seen:
                seen.add(pair)  # with aggregates on both sides it would come twice
                yield from self._measured(found[0], found[1], operator, other, node.find_ancestor(exp.Select))
        if isinstance(node, exp.Exists) and isinstance(node.this, exp.Select) and not node.this.args.get("group"):
            counted = self._measured(node.this, exp.Count(this=exp.Star()), ">", exp.Literal.number(0), None)
            yield from (one for one in counted if not one.keys)

    def _aggregate(self, subject: exp.Expr) -> tuple[exp.Select, exp.Expr] | None:
        """The SELECT that computes an aggregate, and the expression there; None if the subject is none."""
        if isinstance(subject, exp.Subquery) and isinstance(subject.this, exp.Select):
            selects = subject.this.selects
            inner = selects[0].unalias() if len(selects) == 1 else None
            return (subject.this, inner) if inner is not None and _aggregates(inner) else None
        meaning = self._scopes.meaning(subject) if isinstance(subject, exp.Column) else subject
        if not isinstance(meaning, exp.Expr) or not _aggregates(meaning):
            return None
        select = meaning.find_ancestor(exp.Select)
        return (select, meaning) if select is not None else None

    def _decorrelated(
        self, conditions: Iterable[exp.Expr], names: set[str], tables: Sequence[str]
    ) -> tuple[list[exp.Expr], list[exp.Expr]] | None:
        """The conditions that name no outer query, and the columns equal to one of its; None if that is unclear.

        Args:
            names: by which the query knows its own sources.
            tables: those that it or a query in it reads.
        """
        kept: list[exp.Expr] = []
        keys: list[exp.Expr] = []

        def is_outer(column: exp.Expr, own: set[str]) -> bool:
            if not isinstance(column, exp.Column):
                return False
            if column.table:
                return column.table.lower() not in own
            origin = self._scopes.meaning(column)
            return isinstance(origin, Origin) and origin.table.lower() not in tables

        for one in conditions:
            own = names | {table.alias_or_name.lower() for table in one.find_all(exp.Table)}
            if not any(is_outer(column, own) for column in one.find_all(exp.Column)):
                kept.append(one)
                continue
            sides = [bare(one.this), bare(one.expression)] if isinstance(one, exp.EQ) else []
            inner = [side for side in sides if isinstance(side, exp.Column) and not is_outer(side, own)]
            if len(inner) != 1:
                return None
            keys += inner
        return kept, keys

    def _measured(
        self, select: exp.Select, left: exp.Expr, operator: str, right: exp.Expr, around: exp.Select | None
    ) -> Iterator[Threshold]:
        tables = list(dict.fromkeys(table.name.lower() for table in select.find_all(exp.Table)))
        known = [self._tables[name] for name in tables if name in self._tables]
        source = select.args.get("from_")
        outside = around is not select and any(isinstance(one, exp.Column) for one in _within(right))
        if source is None or not known or any(table.view for table in known) or outside:
            return
        joins, where = select.args.get("joins") or (), select.args.get("where")
        names = {one.alias_or_name.lower() for one in (source.this, *(join.this for join in joins))}
        whole = [where.this] if where else []
        conditions = whole[0].flatten() if whole and isinstance(whole[0], exp.And) else whole
        parted = self._decorrelated(conditions, names, tables)
        if parted is None:
            return
        kept, inner = parted
        window = next((one for one in _within(left) if isinstance(one, exp.Window)), None)
        ranked = window is not None and isinstance(window.this, _RANKS)
        grouped = window is None or ranked
        keys = [*((window.args.get("partition_by") or ()) if window else _group_keys(select)), *inner]
        shown = [_resolved(one, select) for one in keys]
        sides = [exp.Count(this=exp.Star()) if ranked else _resolved(left, select), _resolved(right, select)]
        parts = [
            *_common(select),
            "SELECT" if grouped else "SELECT DISTINCT",
            ", ".join(one.sql("sqlite") for one in (*shown, *sides)),
            source.sql("sqlite"),
            *(join.sql("sqlite") for join in joins),
            *(["WHERE", " AND ".join(f"({one.sql('sqlite')})" for one in kept)] if kept else ()),
            *(["GROUP BY", ", ".join(one.sql("sqlite") for one in shown)] if keys and grouped else ()),
        ]
        origins = [self._scopes.meaning(one) for one in keys]
        columns = [
            column
            for side in (left, right)
            for agg in _within(side)
            if _is_aggregate(agg)
            for column in agg.find_all(exp.Column)
        ]
        arguments = [one for one in map(self._scopes.meaning, columns) if isinstance(one, Origin)]
        yield Threshold(
            " ".join(parts),
            tuple(one if isinstance(one, Origin) else None for one in origins),
            operator,
            tuple(table.name for table in known),
            tuple(dict.fromkeys(arguments)),
            not any(isinstance(one, exp.Query) for side in (left, right) for one in _within(side)),
        )


def _within(node: exp.Expr) -> Iterator[exp.Expr]:
    """The expression's nodes, without those inside of a nested query."""
    return node.walk(prune=lambda one: isinstance(one, exp.Query))


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, (exp.AggFunc, *_RANKS))


def _aggregates(node: exp.Expr) -> bool:
    return any(map(_is_aggregate, _within(node)))


def _group_keys(select: exp.Select) -> Iterator[exp.Expr]:
    """What GROUP BY names; the number of an output column is its expression."""
    group = select.args.get("group")
    for key in group.expressions if group else ():
        at = int(key.name) if isinstance(key, exp.Literal) and key.is_int else 0
        yield select.selects[at - 1].unalias() if 0 < at <= len(select.selects) else key


def _resolved(node: exp.Expr, select: exp.Select) -> exp.Expr:
    """A copy in which the names of output columns are the expressions that they stand for."""
    named = {one.alias.lower(): one.this for one in select.selects if isinstance(one, exp.Alias)}

    def swap(one: exp.Expr) -> exp.Expr:
        plain = isinstance(one, exp.Column) and not one.table and one.parent_select is None
        return exp.Paren(this=named[one.name.lower()].copy()) if plain and one.name.lower() in named else one

    return node.copy().transform(swap)


def _common(select: exp.Select) -> Sequence[str]:
    """The WITH clause that the SELECT can see."""
    around: list[exp.With] = []
    node: exp.Expr | None = select
    while node is not None:
        if found := node.args.get("with_"):
            around.insert(0, found)
        node = node.parent
    tables = ", ".join(cte.sql("sqlite") for found in around for cte in found.expressions)
    recursive = " RECURSIVE" if any(found.args.get("recursive") for found in around) else ""
    return [f"WITH{recursive} {tables}"] if tables else []
