"""Make a varied database of the same schema, which distinguishes the gold query from queries right by accident.

The idea comes from test suites for text-to-SQL (Zhong, Yu, Klein 2020, arXiv 2010.02840). A query that agrees with the
gold query on several databases, whose values lie around its constants, most likely equals it. They generate many random
databases and keep those that distinguish most mutations. Here each database is planned. Some rows are witnesses, which
meet all conditions of the gold query and refer to each other. Some nearly meet one condition. The others are free. So a
few small databases are enough, and they take milliseconds for each gold query.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlfactory_nl2sql.checks.constants import Constant
from rlfactory_nl2sql.connection import TableRows
from rlfactory_nl2sql.instances.characters import character
from rlfactory_nl2sql.instances.demands import demands_of
from rlfactory_nl2sql.instances.domains import learn
from rlfactory_nl2sql.instances.filling import Filling
from rlfactory_nl2sql.instances.links import in_order, links_of, sound
from rlfactory_nl2sql.schema import Schema


def vary(schema: Schema, data: TableRows, constants: Sequence[Constant], seed: int, number: int) -> TableRows:
    """Rows for each base table with rows in ``data``; the other tables stay empty.

    The rows satisfy primary keys, UNIQUE, NOT NULL and foreign keys. Values keep their kinds and formats, and a column
    has NULLs only if it has some in ``data``. References within a table form no circle, so that recursive queries end.

    Args:
        schema: views in it are ignored.
        data: some rows of each table. Rows that they refer to may be missing.
        constants: those of the gold query.
        seed: the same arguments give the same rows.
        number: counts from 1, and chooses a `characters.Character` in turn.
    """
    tables = {table.name: table for table in schema.tables if not table.view}
    given = {name.lower(): rows for name, rows in data.items()}
    domains = {
        name: tuple(
            learn(column, [row[place] for row in given.get(name.lower(), ())])
            for place, column in enumerate(table.columns)
        )
        for name, table in tables.items()
    }
    links = links_of(schema)
    rng = random.Random(f"{seed} {number}")
    kind = character(number)
    demands = demands_of(tables, domains, links, constants)
    if kind.even:
        demands = demands.unsized()
    conditions = random.Random(seed).sample(list(demands.boundaries), len(demands.boundaries))
    if kind.unmet is not None and kind.unmet < len(conditions):
        demands = demands.unmet(conditions[kind.unmet])
    filling = Filling(tables, domains, links, demands, kind, rng)
    for name in in_order(links):
        if given.get(name.lower()):
            filling.fill(name)
    filling.close_circles()
    rows = sound(filling.rows, tables, links)
    for held in rows.values():
        rng.shuffle(held)  # the order of rows must not depend on their roles
    return {name: [tuple(row) for row in rows.get(name, ())] for name in tables}
