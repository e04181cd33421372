"""Follow a column name in a query to what it stands for, through aliases, derived tables, CTEs and outer queries.

sqlglot's `traverse_scope` finds the scopes. Its `qualify` takes three times as long, on each prediction. What only the
database knows stands for nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from rlfactory_nl2sql.checks.parsing import Query
from rlfactory_nl2sql.schema import Schema

_MOST_STEPS = 20  # from a name to another, which may go in rings: SELECT a AS b, b AS a


@dataclass(frozen=True, slots=True)
class Origin:
    """A column of a base table or view, as the schema writes both names."""

    table: str
    column: str


class Scopes:
    """The column names of a query."""

    def __init__(self, query: Query, schema: Schema) -> None:
        try:
            scopes = traverse_scope(query.tree)
        except Exception:  # noqa: BLE001 - sqlglot raises more than its own errors for what it does not understand
            scopes = []
        self._scopes = {id(scope.expression): scope for scope in scopes}
        self._names = {table.name.lower(): table.name for table in schema.tables}
        self._origins = {
            table.name.lower(): {column.name.lower(): Origin(table.name, column.name) for column in table.columns}
            for table in schema.tables
        }

    def meaning(self, node: exp.Expr) -> Origin | exp.Expr | None:
        """The table's column or the other expression that a column stands for; any other expression itself.

        None if that is not known.
        """
        found: Origin | exp.Expr | None = bare(node)
        for _ in range(_MOST_STEPS):
            if not isinstance(found, exp.Column):
                return found
            found = self.source(found)
            found = bare(found) if isinstance(found, exp.Expr) else found
        return None

    def source(self, column: exp.Column) -> Origin | exp.Expr | None:
        """What a column stands for in its own SELECT, as it is written there; it may be another column.

        None if that is not known.
        """
        name, table = column.name.lower(), column.table.lower()
        scope = self._scopes.get(id(column.find_ancestor(exp.Select)))
        while scope is not None:
            found = next(self._in_from(scope, table, name), None)
            if found is None and not table:
                found = next((one.this for one in _named(scope.expression) if one.alias.lower() == name), None)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def _in_from(self, scope: Scope, table: str, name: str) -> Iterator[Origin | exp.Expr]:
        """The columns of this name that the FROM clause of a SELECT provides."""
        for known_as, node in scope.references:
            if table not in {"", known_as.lower()}:
                continue
            inner: exp.Expr | None = node
            names = node.alias_column_names
            if isinstance(node, exp.Table):
                common = {name.lower(): cte for name, cte in scope.cte_sources.items()}.get(node.name.lower())
                inner = common.expression if common and not node.db else None
                names = names or (common.outer_columns if isinstance(common, Scope) else [])
                if inner is None and (origin := self._origins.get(node.name.lower(), {}).get(name)):
                    yield origin
            yield from self._outputs(inner, [each.lower() for each in names], name)

    def _outputs(self, query: exp.Expr | None, names: list[str], name: str) -> Iterator[Origin | exp.Expr]:
        """What a query's output columns of this name are; its first columns may have been given other ``names``."""
        while isinstance(query, (exp.SetOperation, exp.Subquery)):
            query = query.this
        for at, item in enumerate(query.selects if isinstance(query, exp.Select) else ()):
            if item.is_star and (scope := self._scopes.get(id(query))):
                yield from self._in_from(scope, item.table.lower() if isinstance(item, exp.Column) else "", name)
            elif (names[at] if at < len(names) else item.alias_or_name.lower()) == name:
                yield item.unalias()


def bare(node: exp.Expr) -> exp.Expr:
    """The expression without brackets, casts and collations."""
    while isinstance(node, (exp.Paren, exp.Cast, exp.Collate)):
        node = node.this
    return node


def _named(query: exp.Expr) -> list[exp.Alias]:
    return [item for item in query.expressions if isinstance(item, exp.Alias)] if isinstance(query, exp.Select) else []
