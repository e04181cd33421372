"""Make a varied database of the same schema, which distinguishes the gold query from queries right by accident.

The idea comes from test suites for text-to-SQL (Zhong, Yu, Klein 2020, arXiv 2010.02840), which are many random
databases, of which those are kept that distinguish most mutations. Here each database is planned: some rows satisfy all
conditions of the gold query and refer to each other, some miss one condition by little, the others are random. So a few
small databases are enough, and they take milliseconds for each gold query.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from rlfactory_nl2sql.checks.constants import Constant, TableColumn
from rlfactory_nl2sql.connection import Row, TableRows
from rlfactory_nl2sql.instances.characters import DOMINATED, character
from rlfactory_nl2sql.instances.checks import Checks
from rlfactory_nl2sql.instances.conditions import NULL_TESTS, conditions_of
from rlfactory_nl2sql.instances.domains import Domain, learn
from rlfactory_nl2sql.instances.filling import Filling
from rlfactory_nl2sql.instances.links import Keys, in_order, links_of, places_in, sound
from rlfactory_nl2sql.instances.revealing import Revealing
from rlfactory_nl2sql.schema import Schema, Table


def vary(
    schema: Schema,
    data: TableRows,
    constants: Sequence[Constant],
    seed: int,
    number: int,
    *,
    aggregated: Collection[TableColumn] | None = None,
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
        aggregated: if given, there is also what the schema allows and ``data`` happens not to have: NULLs in these
            columns unless they refer to others, and rows in which two columns hold the same value or neighbouring ones.
            In `characters.DOMINATED` databases, one row's value in each of these columns is as much as all others
            together.
    """
    tables = {table.name: table for table in schema.tables if not table.view}
    given = {name.lower(): rows for name, rows in data.items()}
    links = links_of(schema)
    checks = {name: Checks(table) for name, table in tables.items()}
    references = {name: {place for link in links[name] for place in link.places} for name in tables}
    nulls_matter = _nulls_matter(tables, references, constants, aggregated or ())
    domains = {name: _learnt(tables[name], given, checks[name], nulls_matter[name]) for name in tables}
    rng = random.Random(f"{seed} {number}")
    conditions = conditions_of(tables, domains, links, constants).without(character(number).unmet, seed)
    summed = aggregated or () if number in DOMINATED else ()  # not always: a small type cannot hold a sum
    filling = Filling(tables, domains, links, conditions, character(number), rng)
    for name in in_order(links):
        if given.get(name.lower()):
            filling.fill(name)
            fixed = references[name] | Keys(tables[name]).places
            free = [place for place in range(len(domains[name])) if place not in fixed]
            revealing = Revealing(filling.rows[name], domains[name], free, rng)
            if aggregated is not None:
                revealing.bring_together()
            if not conditions.groups:
                revealing.lead(conditions.bound(name), nulls_matter[name], number)
            if dominated := [place for place in places_in(tables[name], summed) if place in free]:
                revealing.dominate(dominated, filling.joined[name])
            _mend([one.values for one in filling.rows[name]], given[name.lower()], checks[name], fixed, rng)
    filling.close_circles()
    held = {name: [one.values for one in made if checks[name].hold(one.values)] for name, made in filling.rows.items()}
    kept = sound(held, tables, links)
    for check in checks.values():
        check.close()
    for left in kept.values():
        rng.shuffle(left)  # the order of rows must not depend on their roles
    return {name: [tuple(row) for row in kept.get(name, ())] for name in tables}


def _nulls_matter(
    tables: Mapping[str, Table],
    references: Mapping[str, Collection[int]],
    constants: Sequence[Constant],
    aggregated: Collection[TableColumn],
) -> dict[str, set[int]]:
    """By table, the places of columns that a query tests for NULL, or aggregates without being references."""
    tested = [
        ((one.table or "").lower(), (one.column or "").lower()) for one in constants if one.operator in NULL_TESTS
    ]
    return {
        name: set(places_in(table, tested)) | set(places_in(table, aggregated)).difference(references[name])
        for name, table in tables.items()
    }


def _learnt(table: Table, given: TableRows, checks: Checks, nulls_matter: Collection[int]) -> tuple[Domain, ...]:
    """The domains of a table's columns, from its given rows."""
    rows = given.get(table.name.lower(), ())
    return tuple(
        learn(column, [row[place] for row in rows], partial(checks.allows, place), nulls_matter=place in nulls_matter)
        for place, column in enumerate(table.columns)
    )


def _mend(
    rows: Sequence[list[Any]], given: Sequence[Row], checks: Checks, fixed: Collection[int], rng: random.Random
) -> None:
    """Where a CHECK does not hold, give all columns of CHECKs the values of one given row, unless ``fixed``."""
    for row in rows:
        if not checks.hold(row):
            model = rng.choice(given)
            for place in checks.places.difference(fixed):
                row[place] = model[place]
