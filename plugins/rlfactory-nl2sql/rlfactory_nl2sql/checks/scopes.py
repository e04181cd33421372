"""Resolve each name in a query to a table and column, through aliases, derived tables, CTEs and outer queries.

sqlglot's `qualify`, which `naming` uses, gives up at the first name that it cannot resolve. Here each name has an
answer, and one that may come from an unknown source, such as a table function, is `Kind.UNCERTAIN`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from sqlglot import exp

from rlfactory_nl2sql.checks.parsing import Query
from rlfactory_nl2sql.schema import Schema, Table

# Hidden columns that every table has, by dialect.
_HIDDEN = {
    "sqlite": {"rowid", "oid", "_rowid_"},
    "duckdb": {"rowid"},
    "postgres": {"ctid", "tableoid", "xmin", "xmax", "cmin", "cmax"},
    "mysql": {"_rowid"},
}
# Functions without parentheses that sqlglot parses as columns in some dialects.
_WORDS = {
    "user", "current_user", "session_user", "system_user", "current_role", "current_catalog", "current_schema",
    "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "true", "false",
}  # fmt: skip

_SYSTEM_TABLES = ("sqlite_", "pg_", "duckdb_", "pragma_", "information_schema")


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
    item: exp.Expr | None = None  # the output column of an inner SELECT that gives it


@dataclass(slots=True)
class Source:
    """An item of a FROM clause."""

    name: str  # lower case; empty for a derived table without a name
    node: exp.Expr
    columns: dict[str, Output] = field(default_factory=dict)  # by name
    open: bool = False  # it may have more columns
    table: Table | None = None  # where it is one of the schema's


@dataclass(slots=True)
class Scope:
    """One SELECT, or the ORDER BY of a set operation, with the names that can be used in it."""

    node: exp.Expr
    parent: Scope | None
    sources: list[Source] = field(default_factory=list)
    aliases: dict[str, exp.Expr] = field(default_factory=dict)  # lower case -> the output column's expression
    columns: list[exp.Column] = field(default_factory=list)  # used here, without those in subqueries
    open: bool = False

    def levels(self) -> Iterator[Scope]:
        """This scope and the scopes around it, from the inside out."""
        level: Scope | None = self
        while level is not None:
            yield level
            level = level.parent


class Kind(Enum):
    """The result of resolving a name."""

    COLUMN = "column"
    ALIAS = "alias"  # an output column of the same SELECT
    TEXT = "text"  # for SQLite, a double-quoted name that it does not know is a string
    UNCERTAIN = "uncertain"
    NO_COLUMN = "no column"
    NO_SOURCE = "no source"


@dataclass(frozen=True, slots=True)
class Match:
    """The meaning of a column name. ``source`` is None if several sources have it, as after JOIN … USING."""

    kind: Kind
    source: Source | None = None
    output: Output | None = None

    @property
    def origin(self) -> Origin | None:
        """The base table's column, where it is one."""
        return self.output.origin if self.output else None

    @property
    def made(self) -> exp.Expr | None:
        """The inner SELECT's expression, where it is no table's column."""
        item = self.output.item if self.output and not self.output.origin else None
        return item.unalias() if item is not None else None


_Outputs = list[Output]
_Ctes = dict[str, "_Outputs | None"]  # by name in lower case


class Scopes:
    """All scopes of a query, outer before inner where possible; `find` resolves a column in one of them."""

    def __init__(self, query: Query, schema: Schema) -> None:
        """Read the whole tree once. Time grows with its size."""
        self.all: list[Scope] = []
        self.missing_tables: list[exp.Table] = []
        self._query = query
        self._schema = schema
        self._read_query(query.tree, None, {})

    def find(self, column: exp.Column, scope: Scope) -> Match:
        """The meaning of a column of ``scope.columns``."""
        return self._qualified(column, scope) if column.table else self._unqualified(column, scope)

    def _qualified(self, column: exp.Column, scope: Scope) -> Match:
        name, table = column.name.lower(), column.table.lower()
        for level in scope.levels():
            for source in level.sources:
                if source.name != table:
                    continue
                if name in source.columns:
                    return Match(Kind.COLUMN, source, source.columns[name])
                if self._is_hidden(name, source):
                    return Match(Kind.COLUMN, source)
                return Match(Kind.UNCERTAIN if source.open else Kind.NO_COLUMN, source)
            if level.open:
                return Match(Kind.UNCERTAIN)
        # A field of a column, such as address.street.
        fields = self._query.dialect in ("duckdb", "postgres") and any(
            table in source.columns or source.open for level in scope.levels() for source in level.sources
        )
        return Match(Kind.UNCERTAIN if fields or column.args.get("db") else Kind.NO_SOURCE)

    def _unqualified(self, column: exp.Column, scope: Scope) -> Match:
        name = column.name.lower()
        if name in scope.aliases and isinstance(column.parent, exp.Ordered) and _sorts(column.parent, scope):
            return Match(Kind.ALIAS)
        for level in scope.levels():
            hits = [source for source in level.sources if name in source.columns]
            if hits:
                return Match(Kind.COLUMN, hits[0] if len(hits) == 1 else None, hits[0].columns[name])
            if name in level.aliases:
                return Match(Kind.ALIAS)
            if level.open or any(source.open or self._is_hidden(name, source) for source in level.sources):
                return Match(Kind.UNCERTAIN)
            if self._query.dialect in ("duckdb", "postgres") and any(source.name == name for source in level.sources):
                return Match(Kind.UNCERTAIN)  # a whole row
        if self._is_text(column):
            return Match(Kind.TEXT)
        return Match(Kind.UNCERTAIN if name in _WORDS else Kind.NO_COLUMN)

    def _is_hidden(self, name: str, source: Source) -> bool:
        return source.table is not None and name in _HIDDEN[self._query.dialect]

    def _is_text(self, column: exp.Column) -> bool:
        start = column.this.meta.get("start") if isinstance(column.this, exp.Identifier) else None
        return self._query.dialect == "sqlite" and start is not None and self._query.sql[start : start + 1] == '"'

    def _read_query(self, node: exp.Expr, parent: Scope | None, ctes: _Ctes) -> _Outputs | None:
        """Read the scopes of a query, and return its output columns; None if only the database knows them."""
        ctes = self._read_ctes(node, parent, ctes)
        if isinstance(node, exp.Select):
            return self._read_select(node, parent, ctes)
        outputs: _Outputs | None = None
        scope = Scope(node, parent, open=True)
        read: list[exp.Expr] = []
        if isinstance(node, exp.SetOperation):
            read = [node.left, node.right]
            outputs = self._read_query(node.left, parent, ctes)
            self._read_query(node.right, parent, ctes)
            outputs = None if node.args.get("by_name") else outputs
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            read = [node.this]
            outputs = self._read_query(node.this, parent, ctes)
        self._read_columns(node, scope, ctes, {id(part) for part in read})
        if scope.columns:
            self.all.append(scope)
        return outputs

    def _read_ctes(self, node: exp.Expr, parent: Scope | None, ctes: _Ctes) -> _Ctes:
        clause = node.args.get("with_")
        if clause is None:
            return ctes
        ctes = dict(ctes)
        for cte in clause.expressions:
            name = cte.alias.lower()
            body = cte.this
            if isinstance(body, exp.SetOperation) and not body.args.get("with_"):
                # It may refer to itself. Its first part then determines its columns.
                before = len(self.all), len(self.missing_tables)
                first = self._read_query(body.left, parent, ctes)
                del self.all[before[0] :], self.missing_tables[before[1] :]
                ctes[name] = _renamed(first, cte)
            ctes[name] = _renamed(self._read_query(body, parent, ctes), cte)
        return ctes

    def _read_select(self, node: exp.Select, parent: Scope | None, ctes: _Ctes) -> _Outputs | None:
        scope = Scope(node, parent)
        self.all.append(scope)
        clause = node.args.get("from_")
        roots = [clause.this] if clause is not None else []
        roots += [join.this for join in node.args.get("joins") or []] + (node.args.get("laterals") or [])
        read: set[int] = set()
        for root in roots:
            self._read_source(root, scope, ctes, read)
        for item in node.expressions:
            if isinstance(item, exp.Alias):
                scope.aliases.setdefault(item.alias.lower(), item.this)
            elif isinstance(item, exp.Aliases):
                scope.open = True
        self._read_columns(node, scope, ctes, read)
        return self._outputs(node, scope)

    def _read_source(self, node: exp.Expr, scope: Scope, ctes: _Ctes, read: set[int]) -> None:
        """Add a source of FROM or JOIN. ``read`` gets the ids of derived tables whose queries have been read."""
        name = node.alias_or_name.lower()
        source = Source(name, node, open=True)
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):  # brackets around joined tables
            self._read_source(node.this, scope, ctes, read)
            if not name or node.this.alias_or_name.lower() == name:
                return
        elif isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            self._read_table(node, source, ctes)
        elif isinstance(node, exp.Subquery):
            read.add(id(node))
            source.name = node.alias.lower()
            # Only DuckDB lets a derived table see those beside it without LATERAL.
            outer = scope if self._query.dialect == "duckdb" else scope.parent
            _fill(source, _renamed(self._read_query(node, outer, ctes), node))
        if node.args.get("pivots"):
            source.open = True
        scope.sources.append(source)
        for join in node.args.get("joins") or []:
            self._read_source(join.this, scope, ctes, read)

    def _read_table(self, node: exp.Table, source: Source, ctes: _Ctes) -> None:
        name = node.name.lower()
        if name in ctes and not node.db:
            _fill(source, _renamed(ctes[name], node))
            return
        table = self._schema.table(name)
        if table is None:
            if not node.db and not name.startswith(_SYSTEM_TABLES) and "." not in name:
                self.missing_tables.append(node)
            return
        source.table = table
        outputs = [Output(column.name.lower(), Origin(table.name, column.name)) for column in table.columns]
        _fill(source, _renamed(outputs, node))

    def _read_columns(self, node: exp.Expr, scope: Scope, ctes: _Ctes, read: set[int]) -> None:
        """Collect the columns used in ``node`` itself, and read the subqueries in it."""
        stack = [child for key, child in _children(node) if key != "with_"]
        while stack:
            child = stack.pop()
            if id(child) in read:
                continue
            if isinstance(child, exp.Query) and not (
                isinstance(child, exp.Subquery) and isinstance(child.this, exp.Table)
            ):
                self._read_query(child, scope, ctes)
            elif isinstance(child, exp.Column):
                scope.columns.append(child)
            elif not isinstance(child, (exp.Lambda, exp.Comprehension, exp.Pivot)):  # these bind names of their own
                stack += [
                    grand for key, grand in _children(child) if not (isinstance(child, exp.In) and key == "field")
                ]
        scope.columns.sort(
            key=lambda column: column.this.meta.get("start", 0) if isinstance(column.this, exp.Expr) else 0
        )

    def _outputs(self, node: exp.Select, scope: Scope) -> _Outputs | None:
        outputs: _Outputs = []
        for item in node.expressions:
            inner = item.unalias()
            star = inner.this if isinstance(inner, exp.Column) else inner
            if isinstance(star, exp.Star):
                table = inner.table.lower() if isinstance(inner, exp.Column) else ""
                chosen = [source for source in scope.sources if not table or source.name == table]
                if not chosen or any(source.open for source in chosen) or len(star.args) > 0:
                    return None
                outputs += [column for source in chosen for column in source.columns.values()]
            elif isinstance(inner, exp.Column):
                found = self.find(inner, scope).output
                outputs.append(Output(item.alias_or_name.lower(), found.origin if found else None, item))
            elif isinstance(inner, (exp.Columns, exp.Dot)) or isinstance(item, exp.Aliases):
                return None
            else:
                outputs.append(Output(item.alias.lower(), item=item))
        return outputs


def _sorts(ordered: exp.Expr, scope: Scope) -> bool:
    """Whether this is a key of the scope's own ORDER BY, rather than a window's."""
    return ordered.parent is not None and ordered.parent.parent is scope.node


def _children(node: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    for key, value in node.args.items():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, exp.Expr):
                yield key, child


def _renamed(outputs: _Outputs | None, node: exp.Expr) -> _Outputs | None:
    """The columns under the names that ``AS t (a, b)`` gives them."""
    names = [name.lower() for name in node.alias_column_names]
    if outputs is None:
        return None
    return [replace(output, name=name) for name, output in zip(names, outputs, strict=False)] + outputs[len(names) :]


def _fill(source: Source, outputs: _Outputs | None) -> None:
    source.open = outputs is None or any(not output.name for output in outputs)
    for output in outputs or []:
        # Two columns have this name, and only the database knows which is meant.
        first = source.columns.setdefault(output.name, output)
        if first is not output:
            source.columns[output.name] = Output(output.name)
