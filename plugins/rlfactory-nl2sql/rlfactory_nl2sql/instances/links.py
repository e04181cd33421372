"""Tables, their references and keys: the order in which to fill them, and the rows that violate a constraint."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rlfactory_nl2sql.checks.constants import TableColumn
from rlfactory_nl2sql.connection import Row, TableRows
from rlfactory_nl2sql.instances.domains import Sample, comparable, learn
from rlfactory_nl2sql.instances.scratch import Checks
from rlfactory_nl2sql.schema import Schema, Table


@dataclass(frozen=True, slots=True)
class Link:
    """A reference: the values at some places of a row are those of a row in the target table."""

    places: tuple[int, ...]
    target: str  # as the schema spells it
    target_places: tuple[int, ...]
    declared: bool  # False: it is inferred from names, and some rows may refer to nothing

    def at(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """A row's values at the places."""
        return tuple(row[place] for place in self.places)

    def reference(self, target: Sequence[Any]) -> dict[int, Any]:
        """The values, by place, of a row that refers to the target."""
        return {of: target[to] for of, to in zip(self.places, self.target_places, strict=True)}


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
    found: dict[str, tuple[Link, ...]] = {}
    for table in tables:
        links = []
        for key in table.foreign_keys:
            target = schema.table(key.target)  # SQLite allows references to missing tables
            columns = key.target_columns or target.primary_key if target else ()
            if target is not None and not target.view and len(columns) == len(key.columns):
                places = places_of(table, key.columns), places_of(target, columns)
                links.append(Link(places[0], target.name, places[1], declared=True))
        taken = {column.lower() for key in table.foreign_keys for column in key.columns}
        for place, column in enumerate(table.columns):
            owner = owners.get(column.name.lower())
            if owner is not None and owner.name != table.name and column.name.lower() not in taken:
                links.append(Link((place,), owner.name, places_of(owner, owner.primary_key), declared=False))
        found[table.name] = tuple(links)
    return found


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


class Part:
    """What is known of one table before its rows are made."""

    def __init__(
        self,
        table: Table,
        given: Sequence[Row],
        links: Sequence[Link],
        tested: Collection[TableColumn],
        open_to_nulls: Collection[TableColumn],
    ) -> None:
        """NULLs matter in the ``tested`` columns, and in those ``open_to_nulls`` unless they refer to others."""
        self.table, self.given, self.links = table, given, links
        self.keys, self.checks = Keys(table), Checks(table, given)
        references, self.sample = {place for link in links for place in link.places}, Sample(given)
        self.free = [at for at in range(len(table.columns)) if at not in references | self.keys.places]
        self.nulls_matter = {*places_in(table, tested)} | {*places_in(table, open_to_nulls)} - references
        self.domains = [
            replace(
                domain := learn(column, self.sample, place),
                allows=partial(self.checks.allows, place),
                nulls=domain.nulls or (place in self.nulls_matter and column.nullable),
            )
            for place, column in enumerate(table.columns)
        ]

    def mend(self, rows: Sequence[list[Any]], rng: random.Random) -> None:
        """Where a CHECK does not hold, give the free columns of CHECKs the values of one given row."""
        for row in rows:
            if not self.checks.hold(row):
                model = rng.choice(self.given)
                for place in self.checks.places.intersection(self.free):
                    row[place] = model[place]


def shaped_columns(schema: Schema, data: TableRows) -> frozenset[TableColumn]:
    """The columns whose values have a shape (see `shapes`), by these rows."""
    given = {name.lower(): Sample(rows) for name, rows in data.items()}
    return frozenset(
        (table.name.lower(), column.name.lower())
        for table in schema.tables
        if not table.view and table.name.lower() in given
        for place, column in enumerate(table.columns)
        if learn(column, given[table.name.lower()], place).shape is not None
    )


def sound(rows: Mapping[str, Iterable[Sequence[Any]]], schema: Schema) -> dict[str, list[Row]]:
    """The rows without those that violate a key or refer to a missing row."""
    tables = {table.name: table for table in schema.tables}
    links = [(name, link) for name, some in links_of(schema).items() for link in some if link.declared]
    kept = {name: list(Keys(tables[name]).kept(given)) for name, given in rows.items()}
    before = None
    while before != (left := sum(map(len, kept.values()))):
        before = left
        for name, link in links:
            there = {tuple(row[place] for place in link.target_places) for row in kept[link.target]}
            kept[name] = [row for row in kept[name] if link.at(row) in there or None in link.at(row)]
    return {name: [tuple(row) for row in rows] for name, rows in kept.items()}


SHARES = (0.9, 0.75, 0.5)
"""The shares of rows to try. With many, the query's result is seldom empty; with few, it differs most."""


def subsample(schema: Schema, data: TableRows, share: float, seed: int) -> TableRows:
    """A share of each table's rows, without those that would then refer to a missing row.

    A table of several rows loses at least one, so that no table has as many rows as in the given database.
    """
    rng = random.Random(f"{seed} {share}")
    given = {name.lower(): rows for name, rows in data.items()}
    kept = {}
    for name in (table.name for table in schema.tables if not table.view):
        rows = given.get(name.lower(), ())
        count = max(min(round(len(rows) * share), len(rows) - 1), min(len(rows), 1))
        kept[name] = [rows[at] for at in sorted(rng.sample(range(len(rows)), count))]
    return sound(kept, schema)
