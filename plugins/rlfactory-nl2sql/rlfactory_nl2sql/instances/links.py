"""References and keys: the order in which to fill the tables, and the rows that violate a constraint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlfactory_nl2sql.checks.constants import TableColumn
from rlfactory_nl2sql.instances.domains import comparable
from rlfactory_nl2sql.schema import Schema, Table


@dataclass(frozen=True)
class Link:
    """A reference: the values at some places of a row are those of a row in the target table."""

    places: tuple[int, ...]
    target: str  # as the schema spells it
    target_places: tuple[int, ...]
    declared: bool  # False: it is inferred from names, and some rows may refer to nothing

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Each place, with the place in the target table that it refers to."""
        return tuple(zip(self.places, self.target_places, strict=True))

    def at(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """A row's values at the places."""
        return tuple(row[place] for place in self.places)


def places_of(table: Table, columns: Sequence[str]) -> tuple[int, ...]:
    """The places of columns in a row."""
    names = {column.name.lower(): place for place, column in enumerate(table.columns)}
    return tuple(names[column.lower()] for column in columns)


def places_in(table: Table, columns: Iterable[TableColumn]) -> list[int]:
    """The places of those columns that are the table's."""
    named = {column.lower() for name, column in columns if name.lower() == table.name.lower()}
    return [place for place, column in enumerate(table.columns) if column.name.lower() in named]


def links_of(schema: Schema) -> Mapping[str, tuple[Link, ...]]:
    """The links of each base table: its foreign keys, then columns with the name of another table's primary key.

    Many databases declare no foreign keys. The link is to the first table with that primary key; ``id`` is no link.
    """
    tables = [table for table in schema.tables if not table.view]
    owners: dict[str, Table] = {}
    for table in tables:
        if len(table.primary_key) == 1 and table.primary_key[0].lower() != "id":
            owners.setdefault(table.primary_key[0].lower(), table)
    return {table.name: (*_declared(table, schema), *_meant(table, owners)) for table in tables}


def in_order(links: Mapping[str, Sequence[Link]]) -> tuple[str, ...]:
    """The tables, each after those that it refers to, except for circles."""
    ordered: dict[str, None] = {}

    def visit(table: str, above: frozenset[str]) -> None:
        if table in ordered or table in above:
            return
        for link in links[table]:
            visit(link.target, above | {table})
        ordered[table] = None

    for table in links:
        visit(table, frozenset())
    return tuple(ordered)


def _declared(table: Table, schema: Schema) -> Iterator[Link]:
    for key in table.foreign_keys:
        target = schema.table(key.target)
        if target is None or target.view:
            continue  # SQLite allows references to missing tables
        columns = key.target_columns or target.primary_key
        if len(columns) == len(key.columns):
            yield Link(places_of(table, key.columns), target.name, places_of(target, columns), declared=True)


def _meant(table: Table, owners: Mapping[str, Table]) -> Iterator[Link]:
    taken = {column.lower() for key in table.foreign_keys for column in key.columns}
    for place, column in enumerate(table.columns):
        owner = owners.get(column.name.lower())
        if owner is not None and owner.name != table.name and column.name.lower() not in taken:
            yield Link((place,), owner.name, places_of(owner, owner.primary_key), declared=False)


class Keys:
    """The unique columns of a table, and those that take no NULL."""

    def __init__(self, table: Table) -> None:
        declared = [columns for columns in (table.primary_key, *table.unique) if columns]
        self.unique = tuple(dict.fromkeys(places_of(table, columns) for columns in declared))
        self.places = {place for places in self.unique for place in places}
        self.filled = {place for place, column in enumerate(table.columns) if not column.nullable}
        self.filled.update(places_of(table, table.primary_key))

    def kept(self, rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """The rows without those that violate a key, or lack a value."""
        taken: set[Any] = set()
        for row in rows:
            held = [(places, [comparable(row[place]) for place in places]) for places in self.unique]
            mine = {(places, *values) for places, values in held if all(row[place] is not None for place in places)}
            if taken.isdisjoint(mine) and all(row[place] is not None for place in self.filled):
                taken |= mine
                yield row


def sound(
    rows: Mapping[str, Iterable[Sequence[Any]]], tables: Mapping[str, Table], links: Mapping[str, Sequence[Link]]
) -> dict[str, list[Sequence[Any]]]:
    """The rows without those that violate a key or refer to a missing row."""
    kept = {name: list(Keys(tables[name]).kept(given)) for name, given in rows.items()}
    before = None
    while before != (left := sum(map(len, kept.values()))):
        before = left
        for name, link in [(table, link) for table in kept for link in links[table] if link.declared]:
            there = {tuple(row[place] for place in link.target_places) for row in kept.get(link.target, ())}
            kept[name] = [row for row in kept[name] if link.at(row) in there or None in link.at(row)]
    return kept
