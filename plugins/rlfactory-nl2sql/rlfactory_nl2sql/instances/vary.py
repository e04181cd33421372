"""Make a varied database of the same schema, which distinguishes the gold query from queries right by accident.

The idea comes from test suites for text-to-SQL (Zhong, Yu, Klein 2020, arXiv 2010.02840), which are many random
databases, of which those are kept that distinguish most mutations. Here each database is planned: some rows satisfy all
conditions of the gold query and refer to each other, some miss one condition by little, the others are random. So a few
small databases are enough, and they take milliseconds for each gold query.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

from rlfactory_nl2sql.checks.constants import Constant, TableColumn, Uses
from rlfactory_nl2sql.connection import Row, TableRows
from rlfactory_nl2sql.instances.characters import character
from rlfactory_nl2sql.instances.checks import Checks
from rlfactory_nl2sql.instances.conditions import NULL_TESTS, conditions_of
from rlfactory_nl2sql.instances.domains import Domain, Sample, learn
from rlfactory_nl2sql.instances.links import Keys, Link, in_order, links_of, places_in, sound
from rlfactory_nl2sql.instances.revealing import Comparand, Revealing
from rlfactory_nl2sql.instances.rows import Filling, Made
from rlfactory_nl2sql.schema import Schema, Table


def vary(
    schema: Schema,
    data: TableRows,
    constants: Sequence[Constant],
    seed: int,
    number: int,
    used: Uses | None = None,
) -> TableRows:
    """Rows for each base table with rows in ``data``; the other tables stay empty.

    The rows satisfy primary keys, UNIQUE, NOT NULL, foreign keys and CHECKs. Values keep their kinds and formats. A
    column has NULLs only if it has some in ``data``, or if a query asks for them. References within a table form no
    circle, so that recursive queries end.

    Args:
        data: some rows of each table. Rows that they refer to may be missing.
        constants: those of the gold query, or of both queries.
        seed: the same arguments give the same rows.
        number: counts from 1, and chooses a `characters.Character` in turn.
        used: of both queries. If given, there is also what the schema allows and ``data`` happens not to have: NULLs
            in aggregated columns, unless they refer to others or decide which rows a LIMIT keeps, and values of
            compared columns that are equal or neighbouring. With the second ``number`` of each eight, one row's value
            in each aggregated column is as much as all others together.
    """
    tables = {table.name: table for table in schema.tables if not table.view}
    given = {name.lower(): rows for name, rows in data.items()}
    links = links_of(schema)
    kind, rng = character(number), random.Random(f"{seed} {number}")
    tested = [(one.table or "", one.column or "") for one in constants if one.operator in NULL_TESTS]
    open_to_nulls = used.aggregated - used.sorted_by if used else ()
    parts = {
        name: _Part.of(table, given.get(name.lower(), ()), links[name], tested, open_to_nulls)
        for name, table in tables.items()
    }
    domains = {name: part.domains for name, part in parts.items()}
    conditions = conditions_of(tables, domains, links, constants).without(kind.unmet, seed)
    filling = Filling(tables, domains, links, conditions, kind, rng)
    for name in in_order(links):
        if parts[name].given:
            filling.fill(name)
            parts[name].reveal(filling, tables, constants, used, number, rng)
            parts[name].mend([made.values for made in filling.rows[name]], rng)
    filling.close_circles()
    held = {
        name: [one.values for one in filling.rows.get(name, ()) if part.checks.hold(one.values)]
        for name, part in parts.items()
    }
    kept = sound(held, tables, links)
    for part in parts.values():
        part.checks.close()
    for left in kept.values():
        rng.shuffle(left)  # the order of rows must not depend on their roles
    return {name: [tuple(row) for row in rows] for name, rows in kept.items()}


@dataclass(frozen=True, slots=True)
class _Part:
    """What is known of one table before its rows are made."""

    table: Table
    given: Sequence[Row]
    links: Sequence[Link]
    checks: Checks
    domains: Sequence[Domain]  # with NULLs where these matter
    free: Sequence[int]  # the places of columns that are neither keys nor references
    nulls_matter: Collection[int]

    @classmethod
    def of(
        cls,
        table: Table,
        given: Sequence[Row],
        links: Sequence[Link],
        tested: Collection[TableColumn],
        open_to_nulls: Collection[TableColumn],
    ) -> _Part:
        """A table with rows of it.

        Args:
            tested: columns in which NULLs matter.
            open_to_nulls: likewise, unless they refer to others.
        """
        references, checks = {place for link in links for place in link.places}, Checks(table)
        nulls_matter = {*places_in(table, tested)} | {*places_in(table, open_to_nulls)} - references
        free = [at for at in range(len(table.columns)) if at not in references | Keys(table).places]
        sample = Sample(given)
        domains = [
            replace(
                domain := learn(column, sample, place),
                allows=partial(checks.allows, place),
                nulls=domain.nulls or (place in nulls_matter and column.nullable),
            )
            for place, column in enumerate(table.columns)
        ]
        return cls(table, given, links, checks, domains, free, nulls_matter)

    def reveal(
        self,
        filling: Filling,
        tables: Mapping[str, Table],
        constants: Sequence[Constant],
        used: Uses | None,
        number: int,
        rng: random.Random,
    ) -> None:
        """Change the rows so that they show what independent columns hide."""
        table, conditions, made = self.table, filling.conditions, filling.rows[self.table.name]
        revealing = Revealing(made, self.domains, self.free, rng)
        if used:
            revealing.bring_together(list(self._compared(used, tables, filling.rows)))
        if not conditions.groups:
            revealing.lead(conditions.bound(table.name), self.nulls_matter, number)
        if used and used.aggregated and made and number % 8 == 2:  # not always: a small type cannot hold a sum
            places = [place for place in places_in(table, used.aggregated) if place in self.free]
            revealing.dominate(places, filling.joined[table.name] or made, self.links)
        for one in (one for one in constants if one.operator.startswith(("sum", "avg"))):
            for place in places_in(table, [(one.table or "", one.column or "")]):
                revealing.reach(one, place, self.links, number)

    def _compared(
        self, used: Uses, tables: Mapping[str, Table], rows: Mapping[str, Sequence[Made]]
    ) -> Iterator[tuple[int, Comparand]]:
        """Free columns, each with what finds a value it is compared with, in its row or in one that this refers to."""
        for one, other in sorted(used.compared):
            for place in (place for place in places_in(self.table, [one]) if place in self.free):
                yield from ((place, itemgetter(at)) for at in places_in(self.table, [other]))
                for link in self.links:
                    targets = [made.values for made in rows.get(link.target, ())]
                    there = {tuple(row[at] for at in link.target_places): row for row in targets}
                    for at in places_in(tables[link.target], [other]):
                        yield place, partial(_beyond, link, there, at)

    def mend(self, rows: Sequence[list[Any]], rng: random.Random) -> None:
        """Where a CHECK does not hold, give the free columns of CHECKs the values of one given row."""
        for row in rows:
            if not self.checks.hold(row):
                model = rng.choice(self.given)
                for place in self.checks.places.intersection(self.free):
                    row[place] = model[place]


def _beyond(link: Link, there: Mapping[Any, Sequence[Any]], at: int, row: Sequence[Any]) -> Any:
    target = there.get(link.at(row))
    return None if target is None else target[at]
