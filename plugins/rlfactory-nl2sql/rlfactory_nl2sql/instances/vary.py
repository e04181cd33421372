"""Make a varied database of the same schema, which distinguishes the gold query from queries right by accident.

The idea comes from test suites for text-to-SQL (Zhong, Yu, Klein 2020, arXiv 2010.02840). A query that agrees with the
gold query on several databases, whose values lie around its constants, most likely equals it. They generate many random
databases and keep those that distinguish most mutations. Here each database is planned. Some rows satisfy
all conditions of the gold query and refer to each other. Some miss one condition by little. The others are random. So a
few small databases are enough, and they take milliseconds for each gold query.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from rlfactory_nl2sql.checks.constants import Constant
from rlfactory_nl2sql.connection import Row, TableRows
from rlfactory_nl2sql.instances.boundaries import NULL_TESTS
from rlfactory_nl2sql.instances.characters import character
from rlfactory_nl2sql.instances.checks import Checks
from rlfactory_nl2sql.instances.demands import demands_of
from rlfactory_nl2sql.instances.domains import learn
from rlfactory_nl2sql.instances.filling import Filling
from rlfactory_nl2sql.instances.links import Keys, Link, in_order, links_of, sound
from rlfactory_nl2sql.schema import Schema, Table

_MENDING = 8  # tries to satisfy the CHECKs of a row


def vary(schema: Schema, data: TableRows, constants: Sequence[Constant], seed: int, number: int) -> TableRows:
    """Rows for each base table with rows in ``data``; the other tables stay empty.

    The rows satisfy primary keys, UNIQUE, NOT NULL, foreign keys and CHECKs. Values keep their kinds and formats, and a
    column has NULLs only if it has some in ``data``. References within a table form no circle, so that recursive
    queries end.

    Args:
        schema: views in it are ignored.
        data: some rows of each table. Rows that they refer to may be missing.
        constants: those of the gold query.
        seed: the same arguments give the same rows.
        number: counts from 1, and chooses a `characters.Character` in turn.
    """
    tables = {table.name: table for table in schema.tables if not table.view}
    given = {name.lower(): rows for name, rows in data.items()}
    checks = {name: Checks(table) for name, table in tables.items()}
    asked_for_null = {
        ((one.table or "").lower(), (one.column or "").lower()) for one in constants if one.operator in NULL_TESTS
    }
    domains = {
        name: tuple(
            learn(
                column,
                [row[place] for row in given.get(name.lower(), ())],
                partial(checks[name].allows, place),
                nulls_matter=(name.lower(), column.name.lower()) in asked_for_null,
            )
            for place, column in enumerate(table.columns)
        )
        for name, table in tables.items()
    }
    links = links_of(schema)
    rng = random.Random(f"{seed} {number}")
    kind = character(number)
    demands = demands_of(tables, domains, links, constants)
    if kind.unmet is not None:
        demands = demands.unsized()
        conditions = random.Random(seed).sample(list(demands.boundaries), len(demands.boundaries))
        if kind.unmet < len(conditions):
            demands = demands.unmet(conditions[kind.unmet])
    filling = Filling(tables, domains, links, demands, kind, rng)
    for name in in_order(links):
        if given.get(name.lower()):
            filling.fill(name)
            _mend(filling.rows[name], given[name.lower()], checks[name], links[name], tables[name], rng)
    filling.close_circles()
    held = {name: [row for row in made if not checks[name].broken(row)] for name, made in filling.rows.items()}
    rows = sound(held, tables, links)
    for check in checks.values():
        check.close()
    for made in rows.values():
        rng.shuffle(made)  # the order of rows must not depend on their roles
    return {name: [tuple(row) for row in rows.get(name, ())] for name in tables}


def _mend(
    rows: Sequence[list[Any]],
    given: Sequence[Row],
    checks: Checks,
    links: Sequence[Link],
    table: Table,
    rng: random.Random,
) -> None:
    """Give the columns of a CHECK that does not hold the values of a given row, for which it holds.

    Keys and references keep their values. A row for which no CHECK can be mended is left out later.
    """
    fixed = {place for link in links for place in link.places}
    fixed |= {place for places in Keys(table).unique for place in places}
    for row in rows:
        for _ in range(_MENDING):
            broken = [place for place in checks.broken(row) if place not in fixed]
            if not broken:
                break
            model = rng.choice(given)
            for place in broken:
                row[place] = model[place]
