"""Make a varied database of the same schema, which distinguishes the gold query from queries right by accident.

The idea comes from test suites for text-to-SQL (Zhong, Yu, Klein 2020, arXiv 2010.02840), which are many random
databases, of which those are kept that distinguish most mutations. Here each database is planned: some rows satisfy all
conditions of the gold query and refer to each other, some miss one condition by little, the others are random. So a few
small databases are enough, and they take milliseconds for each gold query.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rlfactory_nl2sql.checks.constants import Constant, TableColumn
from rlfactory_nl2sql.connection import Row, TableRows
from rlfactory_nl2sql.instances.characters import character
from rlfactory_nl2sql.instances.checks import Checks
from rlfactory_nl2sql.instances.conditions import NULL_TESTS, conditions_of
from rlfactory_nl2sql.instances.domains import Domain, Sample, learn
from rlfactory_nl2sql.instances.links import Keys, in_order, links_of, places_in, sound
from rlfactory_nl2sql.instances.revealing import Revealing
from rlfactory_nl2sql.instances.rows import Filling
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
            If ``number`` is even, one row's value in each of these columns is as much as all others together.
    """
    tables = {table.name: table for table in schema.tables if not table.view}
    given = {name.lower(): rows for name, rows in data.items()}
    links = links_of(schema)
    kind, rng = character(number), random.Random(f"{seed} {number}")
    tested = [(one.table or "", one.column or "") for one in constants if one.operator in NULL_TESTS]
    checks, domains, free, nulls_matter = {}, {}, {}, {}
    for name, table in tables.items():
        references = {place for link in links[name] for place in link.places}
        checks[name] = Checks(table)
        free[name] = [at for at in range(len(table.columns)) if at not in references | Keys(table).places]
        nulls_matter[name] = {*places_in(table, tested)} | {*places_in(table, aggregated or ())} - references
        domains[name] = _domains(table, given.get(name.lower(), ()), checks[name], nulls_matter[name])
    conditions = conditions_of(tables, domains, links, constants).without(kind.unmet, seed)
    filling = Filling(tables, domains, links, conditions, kind, rng)
    for name in in_order(links):
        if given.get(name.lower()):
            filling.fill(name)
            revealing = Revealing(filling.rows[name], domains[name], free[name], rng)
            if aggregated is not None:
                revealing.bring_together()
            if not conditions.groups:
                revealing.lead(conditions.bound(name), nulls_matter[name], number)
            if aggregated and filling.rows[name] and number % 2 == 0:  # not always: a small type cannot hold a sum
                places = [place for place in places_in(tables[name], aggregated) if place in free[name]]
                revealing.dominate(places, filling.joined[name] or filling.rows[name])
            _mend([made.values for made in filling.rows[name]], given[name.lower()], checks[name], free[name], rng)
    filling.close_circles()
    held = {
        name: [one.values for one in filling.rows.get(name, ()) if checks[name].hold(one.values)] for name in tables
    }
    kept = sound(held, tables, links)
    for check in checks.values():
        check.close()
    for left in kept.values():
        rng.shuffle(left)  # the order of rows must not depend on their roles
    return {name: [tuple(row) for row in rows] for name, rows in kept.items()}


def _domains(table: Table, rows: Sequence[Row], checks: Checks, nulls_matter: Collection[int]) -> list[Domain]:
    """What the rows say of each column, with its CHECKs, and with NULLs where these matter."""
    sample = Sample(rows)
    learnt = [learn(column, sample, place) for place, column in enumerate(table.columns)]
    return [
        replace(
            domain,
            allows=partial(checks.allows, place),
            nulls=domain.nulls or (place in nulls_matter and table.columns[place].nullable),
        )
        for place, domain in enumerate(learnt)
    ]


def _mend(
    rows: Sequence[list[Any]], given: Sequence[Row], checks: Checks, free: Collection[int], rng: random.Random
) -> None:
    """Where a CHECK does not hold, give the free columns of CHECKs the values of one given row, which hold together."""
    for row in rows:
        if not checks.hold(row):
            model = rng.choice(given)
            for place in checks.places.intersection(free):
                row[place] = model[place]
