"""Rewrite a query with neutral names: aliases that do not depend on the author, and every name explicit.

sqlglot finds what each name means and expands stars. Then tables get aliases by depth and position, CTEs and the output
columns of derived tables get numbers, and ORDER BY has expressions for the names of output columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import MappingSchema, exp
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope

from rlfactory_nl2sql.checks.ordering import is_volatile
from rlfactory_nl2sql.checks.parsing import Query
from rlfactory_nl2sql.checks.scopes import Kind, Scopes
from rlfactory_nl2sql.schema import Schema

_OURS = re.compile(r"_[twc]\d+(_\d+)?", re.IGNORECASE)
# These have their own rules for names.
_UNUSUAL = (exp.Lambda, exp.Comprehension, exp.Pivot, exp.Lateral, exp.Unnest, exp.Parameter, exp.Columns, exp.Aliases)


class UnsureError(Exception):
    """The names of this query cannot be changed reliably."""


def with_neutral_names(query: Query, schema: Schema) -> exp.Expr:
    """A new tree that means the same; raises `UnsureError` if it holds names that cannot be resolved here."""
    tree = query.tree
    while isinstance(tree, exp.Subquery) and tree.is_wrapper:
        tree = tree.this
    tree = tree.copy()
    _refuse_unusual(tree, query.dialect, schema)
    if query.dialect == "sqlite" and '"' in query.sql:
        _write_texts(tree, query, schema)
    _fold(tree, query.dialect)
    _name_subqueries(tree)
    try:
        tree = qualify(tree, dialect=query.dialect, schema=_mapping(schema, query.dialect), sql=query.sql)
        for part in list(tree.find_all(exp.Select, exp.SetOperation)):
            _write_sort_keys(part)
        scopes = traverse_scope(tree)
    except Exception as error:  # sqlglot raises more than its own errors for what it does not understand
        raise UnsureError from error
    _rename(tree, scopes)
    return tree


def _refuse_unusual(tree: exp.Expr, dialect: str, schema: Schema) -> None:
    spellings: dict[str, str] = {}
    for node in tree.walk():
        if isinstance(node, _UNUSUAL) or (isinstance(node, exp.SetOperation) and node.args.get("by_name")):
            raise UnsureError
        if isinstance(node, exp.Star) and isinstance(node.parent, (exp.Paren, exp.Alias)):
            raise UnsureError
        if isinstance(node, exp.Join) and node.method:
            raise UnsureError  # NATURAL
        if isinstance(node, exp.Subquery) and isinstance(node.parent, exp.Subquery):
            raise UnsureError  # sqlglot drops a pair of brackets, which count in IN ((SELECT …))
        if isinstance(node, exp.Identifier) and dialect == "postgres":
            # If "Name" and name are different, no name is certain.
            folded = node.name if node.quoted else node.name.lower()
            if spellings.setdefault(folded.lower(), folded) != folded:
                raise UnsureError
    columns = {column.name.lower() for table in schema.tables for column in table.columns}
    if is_volatile(tree) or any(_OURS.fullmatch(name) for name in (*columns, *(table.name for table in schema.tables))):
        raise UnsureError
    for select in tree.find_all(exp.Select):
        _refuse_ambiguous(select, columns)


def _refuse_ambiguous(select: exp.Select, columns: set[str]) -> None:
    """Refuse names that are those of an output column and of a table's, between which databases choose differently."""
    for item in select.expressions:
        name = item.alias.lower()
        if name in columns and not (isinstance(item.this, exp.Column) and item.this.name.lower() == name):
            own = {id(column) for column in item.find_all(exp.Column)}
            used = (column for column in select.find_all(exp.Column) if id(column) not in own)
            if any(not column.table and column.name.lower() == name for column in used):
                raise UnsureError


def _write_texts(tree: exp.Expr, query: Query, schema: Schema) -> None:
    """Write as text what SQLite reads as text: a name in double quotes that it does not know."""
    scopes = Scopes(Query(query.sql, query.dialect, tree), schema)
    for column in scopes.columns:
        if scopes.find(column).kind is Kind.TEXT:
            column.replace(exp.Literal.string(column.name))


def _fold(tree: exp.Expr, dialect: str) -> None:
    """Fold what sqlglot does not: MySQL's names but for those of tables, and SQLite's ``main``."""
    for name in list(tree.find_all(exp.Identifier)):
        if dialect == "sqlite" and name.arg_key == "db" and name.name.lower() == "main":
            name.pop()
        named = name.parent.this if isinstance(name.parent, exp.TableAlias) else None
        if dialect == "mysql" and not (isinstance(name.parent, exp.Table) or name.arg_key == "table" or name is named):
            name.set("this", name.name.lower())


def _name_subqueries(tree: exp.Expr) -> None:
    """Give subqueries among the output columns their names as other expressions have them."""
    for select in list(tree.find_all(exp.Select)):
        for place, item in enumerate(select.expressions, 1):
            if isinstance(item, exp.Subquery):
                named = exp.Alias(alias=_identifier(item.alias or f"_c{place}"))
                item.replace(named)
                item.set("alias", None)
                named.set("this", item)


def _mapping(schema: Schema, dialect: str) -> MappingSchema:
    """The schema for sqlglot, with names as its tree has them after folding."""
    table_name = str if dialect in ("postgres", "mysql") else str.lower
    column_name = str if dialect == "postgres" else str.lower
    tables: dict[str, object] = {
        table_name(table.name): {column_name(column.name): column.type or "TEXT" for column in table.columns}
        for table in schema.tables
    }
    return MappingSchema(tables, dialect=dialect, normalize=False)


def _write_sort_keys(query: exp.Query) -> None:
    """Replace names of output columns in ORDER BY, for a set operation by their places."""
    order, names = query.args.get("order"), query.named_selects
    for column in list(order.find_all(exp.Column)) if order is not None else ():
        if column.table:
            continue
        meaning = query.selects[names.index(column.name)].unalias()
        if names.count(column.name) > 1 or isinstance(meaning.unnest(), (exp.Literal, exp.Null)):
            raise UnsureError
        of_select = isinstance(query, exp.Select)
        column.replace(exp.paren(meaning) if of_select else exp.Literal.number(names.index(column.name) + 1))


def _rename(tree: exp.Expr, scopes: list[Scope]) -> None:
    ctes = {id(cte): _identifier(f"_w{number}") for number, cte in enumerate(tree.find_all(exp.CTE), 1)}
    changes: list[tuple[exp.Expr, str, exp.Expr]] = [
        (cte, "alias", exp.TableAlias(this=ctes[id(cte)])) for cte in tree.find_all(exp.CTE)
    ]
    inner = {id(select) for cte in tree.find_all(exp.CTE) for select in _selects(cte.this)}
    for scope in scopes:
        if scope.expression.is_star:  # the columns of a table that is not in the schema
            raise UnsureError
        for place, (name, (node, source)) in enumerate(scope.selected_sources.items(), 1):
            alias = _identifier(f"_t{_depth(scope)}_{place}")
            derived = source.expression if isinstance(source, Scope) else None
            names = derived.named_selects if isinstance(derived, exp.Query) else []
            if isinstance(source, Scope) and source.is_cte:
                changes.append((node, "this", ctes[id(source.expression.find_ancestor(exp.CTE))]))
            elif derived is not None:
                inner |= {id(select) for select in _selects(derived)}
            named = node.parent if derived is not None and isinstance(node.parent, exp.Subquery) else node
            changes.append((named, "alias", exp.TableAlias(this=alias)))
            for column in scope.columns:
                if column.table == name:
                    changes += [(column, "table", alias), (column, "this", _numbered(column, names))]
    for changed, key, value in changes:
        changed.set(key, value.copy())
    for select in list(tree.find_all(exp.Select)):
        for place, item in enumerate(select.expressions, 1):
            if id(select) in inner and isinstance(item, exp.Alias):
                item.set("alias", _identifier(f"_c{place}"))
            else:
                item.replace(item.unalias())


def _depth(scope: Scope) -> int:
    return 1 if scope.parent is None else 1 + _depth(scope.parent)


def _selects(query: exp.Expr) -> Iterator[exp.Expr]:
    """A SELECT, or those that a set operation combines."""
    query = query.unnest()
    if isinstance(query, exp.SetOperation):
        yield from _selects(query.this)
        yield from _selects(query.expression)
    else:
        yield query


def _numbered(column: exp.Column, names: list[str]) -> exp.Identifier:
    """The new name of a column of a derived table, which has these; a table's column keeps its own."""
    if names and names.count(column.name) != 1:
        raise UnsureError
    return _identifier(f"_c{names.index(column.name) + 1}" if names else column.name)


def _identifier(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=True)
