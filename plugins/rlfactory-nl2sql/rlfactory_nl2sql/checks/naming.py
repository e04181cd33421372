"""Rewrite a query with neutral names: aliases that do not depend on the author, and every name explicit.

Tables get aliases by depth and position. Output columns of derived tables and CTEs get numbers. Every column is written
with its table. References to output columns in ORDER BY and GROUP BY are replaced by their expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import exp

from rlfactory_nl2sql.checks.ordering import is_volatile
from rlfactory_nl2sql.checks.parsing import Query
from rlfactory_nl2sql.checks.scopes import HIDDEN, WORDS, Kind, Match, Scope, Scopes, Source
from rlfactory_nl2sql.schema import Schema

_OURS = re.compile(r"_[twc]\d+(_\d+)?", re.IGNORECASE)
# These have their own rules for names.
_UNUSUAL = (exp.Lambda, exp.Comprehension, exp.Pivot, exp.Lateral, exp.Unnest, exp.Parameter, exp.Columns, exp.Aliases)


class UnsureError(Exception):
    """The names of this query cannot be changed reliably."""


def with_neutral_names(query: Query, schema: Schema) -> exp.Expr:
    """A new tree that means the same.

    Raises:
        UnsureError: it holds names that cannot be resolved here.
    """
    return _Renaming(query, schema).tree


class _Renaming:
    """One pass over the tree: it decides all changes first, and then makes them."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self.dialect = query.dialect
        self.tree = query.tree.copy()
        self.nodes = list(self.tree.walk())  # kept alive, so that ids are not reused while the tree changes
        self.scopes = Scopes(Query(query.sql, query.dialect, self.tree), schema)
        self._refuse_unusual(schema)
        # Joins with USING and NATURAL use the names of output columns.
        self.by_name = any(join.args.get("using") or join.method for join in self.tree.find_all(exp.Join))
        self.ctes = {id(cte): f"_w{number}" for number, cte in enumerate(self.tree.find_all(exp.CTE), 1)}
        self.sources = {
            id(source): f"_t{len(list(scope.levels()))}_{number}"
            for scope in self.scopes.all
            for number, source in enumerate(scope.sources, 1)
        }
        self.items = dict(self._named_items())
        self._refuse_column_lists()
        columns = [(column, scope) for scope in self.scopes.all for column in scope.columns]
        self.matches = {id(column): self.scopes.find(column, scope) for column, scope in columns}
        places = {id(column): self._place(column, scope) for column, scope in columns}
        self._change(columns, places)

    def _change(self, columns: list[tuple[exp.Column, Scope]], places: dict[int, int | None]) -> None:
        for column, scope in columns:
            self._rename_column(column, scope, places[id(column)])
        for scope in self.scopes.all:
            for source in scope.sources:
                self._rename_source(source)
        for cte in self.tree.find_all(exp.CTE):
            cte.set("alias", exp.TableAlias(this=_identifier(self.ctes[id(cte)])))
        for select in list(self.tree.find_all(exp.Select)):
            self._name_outputs(select)
        # The expressions are final only now, so they can be copied.
        for column, scope in columns:
            if self.matches[id(column)].kind is Kind.ALIAS:
                self._replace_alias(column, scope)
        for select in list(self.tree.find_all(exp.Select)):
            self._resolve_ordinals(select)
        for identifier in list(self.tree.find_all(exp.Identifier)):
            if identifier.parent is not None and not isinstance(identifier.parent, exp.Column):
                self._fold(identifier)

    def _refuse_unusual(self, schema: Schema) -> None:
        owned = {id(column) for scope in self.scopes.all for column in scope.columns}
        spellings: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, _UNUSUAL) or (isinstance(node, exp.Column) and id(node) not in owned):
                raise UnsureError
            if isinstance(node, exp.SetOperation) and node.args.get("by_name"):
                raise UnsureError
            if isinstance(node, exp.Star) and isinstance(node.parent, (exp.Paren, exp.Alias)):
                raise UnsureError
            if isinstance(node, exp.Identifier) and self.dialect == "postgres":
                # If "Name" and name are different, no name is certain.
                folded = node.name if node.quoted else node.name.lower()
                if spellings.setdefault(folded.lower(), folded) != folded:
                    raise UnsureError
        names = [table.name for table in schema.tables] + [
            column.name for table in schema.tables for column in table.columns
        ]
        if any(_OURS.fullmatch(name) for name in names):
            raise UnsureError

    def _named_items(self) -> Iterator[tuple[int, str]]:
        """The output columns that something outside can refer to, with their new names."""
        for scope in self.scopes.all:
            for source in scope.sources:
                for output in source.columns.values():
                    item = output.item
                    if item is None:
                        continue
                    select = item.parent
                    if self.by_name or not isinstance(select, exp.Select):
                        yield id(item), output.name
                    else:
                        yield id(item), f"_c{next(i for i, one in enumerate(select.expressions, 1) if one is item)}"

    def _place(self, column: exp.Column, scope: Scope) -> int | None:
        """The output column of a set operation that a key of its ORDER BY names."""
        node = scope.node
        if not isinstance(node, exp.SetOperation) or self.matches[id(column)].kind is not Kind.UNCERTAIN:
            return None
        names = [item.alias_or_name.lower() for item in node.selects]
        if names.count(column.name.lower()) != 1 or column.table or node.is_star:
            raise UnsureError
        return names.index(column.name.lower()) + 1

    def _rename_column(self, column: exp.Column, scope: Scope, place: int | None) -> None:
        match = self.matches[id(column)]
        if place is not None:
            column.replace(exp.Literal.number(place))
        elif match.kind is Kind.TEXT:
            column.replace(exp.Literal.string(column.name))
        elif match.kind is Kind.COLUMN:
            self._rename_known(column, scope, match)
        elif isinstance(column.this, exp.Star):
            sources = [source for level in scope.levels() for source in level.sources]
            named = [self.sources[id(source)] for source in sources if source.name == column.table.lower()]
            if not named:
                raise UnsureError
            column.set("table", _identifier(named[0]))
        elif match.kind is Kind.UNCERTAIN and match.source is not None and _is_unknown_table(match.source):
            exact = self.dialect == "postgres" and column.this.args.get("quoted")
            column.set("this", _identifier(column.name if exact else column.name.lower()))
            column.set("table", _identifier(self.sources[id(match.source)]))
        elif match.kind is not Kind.ALIAS and not self._is_the_databases_own(column, match):
            raise UnsureError

    def _is_the_databases_own(self, column: exp.Column, match: Match) -> bool:
        names = WORDS | HIDDEN[self.dialect]
        bare = not column.table and not column.this.args.get("quoted")
        return match.kind is Kind.UNCERTAIN and bare and column.name.lower() in names

    def _rename_known(self, column: exp.Column, scope: Scope, match: Match) -> None:
        name = column.name.lower()
        shadowed = scope.aliases.get(name)
        other = shadowed is not None and self.matches.get(id(shadowed)) != match
        if other and not column.table and column.find_ancestor(exp.Group, exp.Having, exp.Order):
            raise UnsureError  # databases differ in which of the two they take
        if match.source is None:
            if match.output is not None and match.output.item is not None:
                raise UnsureError
            column.set("this", _identifier(name))
            return
        if match.output is None:  # a hidden column
            new = name
        elif match.source.table is not None and match.output.origin is not None:
            new = self._seen(column.this, match.output.origin.column, match.source)
        elif match.output.item is not None:
            new = self.items[id(match.output.item)]
        elif match.output.origin is not None:
            new = name  # through a star
        else:
            raise UnsureError
        column.set("this", _identifier(new))
        column.set("table", _identifier(self.sources[id(match.source)]))
        for part in ("db", "catalog"):
            column.set(part, None)

    def _seen(self, identifier: exp.Expr, column: str, source: Source) -> str:
        """A table's column, with its name as the database reads it."""
        if self.dialect != "postgres":
            return column.lower()
        if source.node.alias_column_names:
            raise UnsureError
        return identifier.name if identifier.args.get("quoted") else identifier.name.lower()

    def _replace_alias(self, column: exp.Column, scope: Scope) -> None:
        """Replace an output column's name by its expression."""
        level = next(level for level in scope.levels() if column.name.lower() in level.aliases)
        meaning = level.aliases[column.name.lower()]
        inner = [self.matches.get(id(one)) for one in meaning.find_all(exp.Column)]
        nested = any(match is not None and match.kind is Kind.ALIAS for match in inner)
        if nested or is_volatile(meaning) or isinstance(meaning.unnest(), (exp.Literal, exp.Null)):
            raise UnsureError
        column.replace(exp.Paren(this=meaning.copy()))

    def _resolve_ordinals(self, select: exp.Select) -> None:
        order, group = select.args.get("order"), select.args.get("group")
        keys = [key.this for key in order.expressions] if order else []
        for key in keys + (list(group.expressions) if group else []):
            if not isinstance(key, exp.Literal) or not key.is_int:
                continue
            before = select.expressions[: int(key.name)]
            meaning = before[-1].unalias() if len(before) == int(key.name) > 0 else None
            if meaning is None or any(item.is_star for item in before):
                continue
            if is_volatile(meaning) or isinstance(meaning.unnest(), (exp.Literal, exp.Null)):
                raise UnsureError
            key.replace(exp.Paren(this=meaning.copy()))

    def _name_outputs(self, select: exp.Select) -> None:
        for item in select.expressions:
            name = self.items.get(id(item))
            bare = item.unalias()
            if name is not None:
                if not (isinstance(bare, exp.Column) and item is bare and bare.name == name):
                    named = exp.Alias(alias=_identifier(name))
                    item.replace(named)
                    named.set("this", bare)
            elif isinstance(item, exp.Alias):
                item.replace(bare)

    def _rename_source(self, source: Source) -> None:
        node = source.node
        if not isinstance(node, (exp.Table, exp.Subquery)) or (
            isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table)
        ):
            raise UnsureError
        node.set("alias", exp.TableAlias(this=_identifier(self.sources[id(source)])))
        if source.cte is not None:
            node.set("this", _identifier(self.ctes[id(source.cte)]))
        if self.dialect == "sqlite" and isinstance(node, exp.Table) and node.db.lower() == "main":
            node.set("db", None)

    def _refuse_column_lists(self) -> None:
        """The names in AS t (a, b) can be dropped only if all inner columns get new names."""
        sources = [source.node for scope in self.scopes.all for source in scope.sources if source.table is None]
        for node in [*sources, *self.tree.find_all(exp.CTE)]:
            names = node.alias_column_names
            body = node.this
            items = body.selects if isinstance(body, exp.Query) else []
            unnamed = self.by_name or len(names) != len(items) or any(id(item) not in self.items for item in items)
            if names and unnamed:
                raise UnsureError

    def _fold(self, identifier: exp.Identifier) -> None:
        """Fold the name's letter case as the database does: MySQL's tables and PostgreSQL's quoted names keep
        theirs."""
        exact = (self.dialect == "postgres" and identifier.quoted) or self.dialect == "mysql"
        identifier.replace(_identifier(identifier.name if exact else identifier.name.lower()))


def _is_unknown_table(source: Source) -> bool:
    return isinstance(source.node, exp.Table) and source.cte is None and bool(source.name)


def _identifier(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=True)
