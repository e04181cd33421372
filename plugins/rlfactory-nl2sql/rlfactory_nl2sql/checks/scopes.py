"""Resolve each column name in a query to a table's column, through aliases, derived tables, CTEs and outer queries.

sqlglot's `traverse_scope` finds the scopes. Its `qualify` gives up at the first name that it cannot resolve. Here each
name has an answer, and one that may come from an unknown source, such as a table function, has no origin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from rlfactory_nl2sql.checks.parsing import Query
from rlfactory_nl2sql.schema import Schema, Table

_HIDDEN = ("rowid", "oid", "_rowid_")  # columns that every table of SQLite has
_BINDING = (exp.Lambda, exp.Comprehension, exp.Pivot)  # these bind names of their own


@dataclass(frozen=True, slots=True)
class Origin:
    """A column of a base table or view, as the schema writes both names."""

    table: str
    column: str


@dataclass(frozen=True, slots=True)
class Output:
    """A column that a source in FROM provides."""

    name: str  # lower case; empty where only the database knows it
    origin: Origin | None = None  # where it is a table's column, unchanged
    made: exp.Expr | None = None  # otherwise the expression of the inner SELECT that gives it


@dataclass(frozen=True, slots=True)
class Source:
    """An item of a FROM clause."""

    name: str  # as written; empty for a derived table without a name
    columns: Mapping[str, Output]  # by name in lower case
    open: bool  # it may have more columns
    table: Table | None = None  # where it is one of the schema's


@dataclass(frozen=True, slots=True)
class _Names:
    """What the names in one SELECT can mean."""

    sources: Sequence[Source] = ()
    aliases: Mapping[str, exp.Expr] | None = None  # in lower case, with the output column's expression
    open: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """The meaning of a column name. Without any of these, only the database knows it."""

    origin: Origin | None = None  # the base table's column, where it is one
    made: exp.Expr | None = None  # the expression that it stands for, where it is none
    column: bool = False  # whether it is a column of a source in FROM
    text: bool = False  # for SQLite, a double-quoted name that it does not know is a string


_UNKNOWN = Match()


class Scopes:
    """The column names of a query, with what each of them means."""

    def __init__(self, query: Query, schema: Schema) -> None:
        """Read the whole tree once. Time grows with its size."""
        self._query, self._schema = query, schema
        try:
            scopes = traverse_scope(query.tree)
        except Exception:  # noqa: BLE001 - sqlglot raises more than its own errors for what it does not understand
            scopes = []
        self._by_query = {id(scope.expression): scope for scope in scopes}
        self._owners = {id(one): (one, scope) for scope in scopes for one in _columns_in(scope)}
        self._names: dict[int, _Names] = {}
        self._outputs: dict[int, list[Output] | None] = {}

    def sources(self, query: exp.Expr | None) -> Sequence[Source]:
        """The items of the FROM clause of a SELECT."""
        scope = self._by_query.get(id(query))
        return self._names_in(scope).sources if scope else ()

    def find(self, column: exp.Expr) -> Match:
        """The meaning of a column."""
        if id(column) not in self._owners or not isinstance(column, exp.Column):
            return _UNKNOWN
        return self._qualified(column) if column.table else self._unqualified(column)

    def _levels(self, column: exp.Expr) -> Iterator[_Names]:
        """The names of a column's SELECT and of those around it, from the inside out."""
        scope: Scope | None = self._owners[id(column)][1]
        while scope is not None:
            yield self._names_in(scope)
            # Only DuckDB lets a derived table see those beside it without LATERAL.
            hidden = scope.is_cte or (scope.is_derived_table and self._query.dialect != "duckdb")
            scope = scope.parent.parent if hidden and scope.parent else scope.parent

    def _qualified(self, column: exp.Column) -> Match:
        for level in self._levels(column):
            for source in level.sources:
                if source.name.lower() == column.table.lower():
                    return _column(source.columns.get(column.name.lower()))
            if level.open:
                break
        return _UNKNOWN

    def _unqualified(self, column: exp.Column) -> Match:
        name, ordered = column.name.lower(), column.parent
        own = self._owners[id(column)][1]
        sorts = isinstance(ordered, exp.Ordered) and ordered.parent is own.expression.args.get("order")
        for level in self._levels(column):
            aliases = level.aliases or {}
            if sorts and name in aliases:
                return Match(made=aliases[name])
            sorts = False
            for source in level.sources:
                if name in source.columns:
                    return _column(source.columns[name])
            if name in aliases:
                return Match(made=aliases[name])
            if level.open or any(source.open or (source.table and name in _HIDDEN) for source in level.sources):
                return _UNKNOWN
        start = column.this.meta.get("start") if isinstance(column.this, exp.Expr) else None
        quoted = start is not None and self._query.sql[start : start + 1] == '"'
        return Match(text=self._query.dialect == "sqlite" and quoted)

    def _names_in(self, scope: Scope) -> _Names:
        select = scope.expression
        if not isinstance(select, exp.Select):
            return _Names()
        if id(select) not in self._names:
            named = [item for item in select.expressions if isinstance(item, exp.Alias)]
            self._names[id(select)] = _Names(
                [self._source(name, node, scope) for name, node in scope.references],
                {item.alias.lower(): item.this for item in reversed(named)},
                any(isinstance(item, exp.Aliases) for item in select.expressions),
            )
        return self._names[id(select)]

    def _source(self, name: str, node: exp.Expr, scope: Scope) -> Source:
        table, outputs = None, None
        if node.args.get("pivots"):
            pass
        elif not isinstance(node, exp.Table):
            outputs = self._outputs_of(self._by_query.get(id(node)))
        elif not node.db and (cte := _cte(node, scope)):
            outputs = self._outputs_of(self._by_query.get(id(cte.expression)))
        elif table := self._schema.table(node.name):
            outputs = [Output(column.name.lower(), Origin(table.name, column.name)) for column in table.columns]
        outputs = _renamed(outputs, node.alias_column_names if isinstance(node, exp.Table) else [])
        columns: dict[str, Output] = {}
        for output in outputs or []:
            # If two columns have one name, only the database knows which is meant.
            columns[output.name] = Output(output.name) if output.name in columns else output
        return Source(name, columns, outputs is None or "" in columns, table)

    def _outputs_of(self, scope: Scope | None) -> list[Output] | None:
        """The output columns of a query; None if only the database knows them."""
        if scope is None:
            return None
        if id(scope.expression) not in self._outputs:
            self._outputs[id(scope.expression)] = None  # for a query that refers to itself
            self._outputs[id(scope.expression)] = _renamed(self._read_outputs(scope), scope.outer_columns)
        return self._outputs[id(scope.expression)]

    def _read_outputs(self, scope: Scope) -> list[Output] | None:
        query = scope.expression
        if isinstance(query, exp.SetOperation):
            first = self._by_query.get(id(query.this.unnest()))
            return None if query.args.get("by_name") else self._outputs_of(first)
        if not isinstance(query, exp.Select):
            return None
        outputs: list[Output] = []
        for item in query.expressions:
            inner = item.unalias()
            if item.is_star:
                table = inner.table.lower() if isinstance(inner, exp.Column) else ""
                chosen = [one for one in self.sources(query) if not table or one.name.lower() == table]
                star = inner.this if isinstance(inner, exp.Column) else inner
                if not chosen or any(source.open for source in chosen) or star.args:
                    return None
                outputs += [column for source in chosen for column in source.columns.values()]
            elif isinstance(inner, (exp.Columns, exp.Dot)) or isinstance(item, exp.Aliases):
                return None
            else:
                origin = self.find(inner).origin
                outputs.append(Output(item.alias_or_name.lower(), origin, None if origin else inner))
        return outputs


def _columns_in(scope: Scope) -> Iterator[exp.Column]:
    """The columns used in a SELECT itself."""
    if isinstance(scope.expression, exp.Select):
        for node in scope.walk(prune=lambda node: isinstance(node, _BINDING)):
            if isinstance(node, exp.Column) and node.arg_key != "field":  # x IN table
                yield node


def _column(output: Output | None) -> Match:
    return _UNKNOWN if output is None else Match(output.origin, output.made, column=True)


def _cte(node: exp.Table, scope: Scope) -> Scope | None:
    found = (cte for name, cte in scope.cte_sources.items() if name.lower() == node.name.lower())
    return next((cte for cte in found if isinstance(cte, Scope)), None)


def _renamed(outputs: list[Output] | None, names: Sequence[str]) -> list[Output] | None:
    """The columns under the names that ``AS t (a, b)`` gives them."""
    if outputs is None:
        return None
    renamed = [replace(output, name=name.lower()) for name, output in zip(names, outputs, strict=False)]
    return renamed + outputs[len(names) :]
