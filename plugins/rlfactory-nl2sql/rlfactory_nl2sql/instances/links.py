"""References and keys: the order in which to fill the tables, and the rows that violate a constraint."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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


def places_of(table: Table, columns: Sequence[str]) -> tuple[int, ...]:
    """The places of columns in a row."""
    names = {column.name.lower(): place for place, column in enumerate(table.columns)}
    return tuple(names[column.lower()] for column in columns)


def places_in(table: Table, columns: Collection[TableColumn]) -> list[int]:
    """The places of those columns that are the table's."""
    return [at for at, column in enumerate(table.columns) if (table.name.lower(), column.name.lower()) in columns]


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


def _declared(table: Table, schema: Schema) -> list[Link]:
    found = []
    for key in table.foreign_keys:
        target = schema.table(key.target)
        if target is None or target.view:
            continue  # SQLite allows references to missing tables
        columns = key.target_columns or target.primary_key
        if len(columns) == len(key.columns):
            found.append(Link(places_of(table, key.columns), target.name, places_of(target, columns), declared=True))
    return found


def _meant(table: Table, owners: Mapping[str, Table]) -> list[Link]:
    taken = {column.lower() for key in table.foreign_keys for column in key.columns}
    found = []
    for place, column in enumerate(table.columns):
        owner = owners.get(column.name.lower())
        if owner is not None and owner.name != table.name and column.name.lower() not in taken:
            found.append(Link((place,), owner.name, places_of(owner, owner.primary_key), declared=False))
    return found


class Keys:
    """The unique columns of one table, and the values of its rows so far."""

    def __init__(self, table: Table) -> None:
        declared = [columns for columns in (table.primary_key, *table.unique) if columns]
        self.unique = tuple(dict.fromkeys(places_of(table, columns) for columns in declared))
        self.filled = frozenset(places_of(table, table.primary_key)) | {
            place for place, column in enumerate(table.columns) if not column.nullable
        }  # places that take no NULL
        self.places = {place for places in self.unique for place in places}
        self._taken: dict[tuple[int, ...], set[tuple[Any, ...]]] = {places: set() for places in self.unique}

    def clash(self, row: Sequence[Any]) -> tuple[int, ...]:
        """The places where the row violates a constraint; empty if it violates none."""
        missing = tuple(place for place in self.filled if row[place] is None)
        if missing:
            return missing
        return next((places for places in self.unique if _value(row, places) in self._taken[places]), ())

    def take(self, row: Sequence[Any]) -> None:
        """Remember the row's values."""
        for places, taken in self._taken.items():
            value = _value(row, places)
            if value is not None:
                taken.add(value)


def sound(
    rows: Mapping[str, Iterable[Sequence[Any]]], tables: Mapping[str, Table], links: Mapping[str, Sequence[Link]]
) -> dict[str, list[Sequence[Any]]]:
    """The rows without those that violate a key or refer to a missing row."""
    kept = {name: _keyed(Keys(tables[name]), given) for name, given in rows.items()}
    dropped = True
    while dropped:
        dropped = False
        for name in tuple(kept):
            for link in links[name]:
                if not link.declared:
                    continue
                there = {tuple(row[place] for place in link.target_places) for row in kept.get(link.target, ())}
                left = [row for row in kept[name] if _refers(row, link, there)]
                dropped = dropped or len(left) < len(kept[name])
                kept[name] = left
    return kept


def _keyed(keys: Keys, rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    kept = []
    for row in rows:
        if not keys.clash(row):
            keys.take(row)
            kept.append(row)
    return kept


def _refers(row: Sequence[Any], link: Link, there: set[tuple[Any, ...]]) -> bool:
    value = tuple(row[place] for place in link.places)
    return None in value or value in there


def _value(row: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...] | None:
    """The values at some places; None if one is NULL, because such a row equals no other."""
    value = tuple(None if row[place] is None else comparable(row[place]) for place in places)
    return None if None in value else value
