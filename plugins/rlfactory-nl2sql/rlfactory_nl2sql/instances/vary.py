"""Make a varied database of the same schema, which distinguishes the gold query from queries right by accident.

The idea comes from test suites for text-to-SQL (Zhong, Yu, Klein 2020, arXiv 2010.02840), which are many random
databases, of which those are kept that distinguish most mutations. Here each database is planned: some rows satisfy all
conditions of the gold query and refer to each other, some miss one condition by little, the others are random. So a few
small databases are enough, and they take milliseconds for each gold query.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from rlfactory_nl2sql.checks.constants import Constant, Uses
from rlfactory_nl2sql.checks.thresholds import Threshold
from rlfactory_nl2sql.connection import TableRows
from rlfactory_nl2sql.instances.aiming import aim
from rlfactory_nl2sql.instances.conditions import NULL_TESTS, conditions_of
from rlfactory_nl2sql.instances.links import Part, in_order, links_of, sound
from rlfactory_nl2sql.instances.revealing import bring_together, dominate, lead
from rlfactory_nl2sql.instances.rows import CHARACTERS, Filling, Role
from rlfactory_nl2sql.schema import Schema


def vary(
    schema: Schema,
    data: TableRows,
    constants: Sequence[Constant],
    seed: int,
    number: int,
    used: Uses | None = None,
    thresholds: Sequence[Threshold] = (),
) -> TableRows:
    """Rows for each base table with rows in ``data``; the other tables stay empty.

    The rows satisfy primary keys, UNIQUE, NOT NULL, foreign keys and CHECKs. Values keep their kinds and formats. A
    column has NULLs only if it has some in ``data``, or if a query asks for them. References within a table form no
    circle, so that recursive queries end.

    Args:
        data: some rows of each table. Rows that they refer to may be missing.
        constants: those of the gold query, or of both queries.
        seed: the same arguments give the same rows.
        number: counts from 1, and chooses one of `rows.CHARACTERS` in turn.
        used: of both queries. If given, there is also what the schema allows and ``data`` happens not to have: NULLs
            in aggregated columns, unless they refer to others or decide which rows a LIMIT keeps, and values of
            compared columns that are equal or neighbouring. With the second ``number`` of each four, one row's value
            in each aggregated column is as much as all others together.
        thresholds: of the gold query.
    """
    given = {name.lower(): rows for name, rows in data.items()}
    links = links_of(schema)
    kind, rng = CHARACTERS[(number - 1) % len(CHARACTERS)], random.Random(f"{seed} {number}")
    tested = [(one.table or "", one.column or "") for one in constants if one.operator in NULL_TESTS]
    open_to_nulls = used.aggregated - used.sorted_by if used else ()
    tables = {table.name: table for table in schema.tables}
    parts = {
        name: Part(tables[name], given.get(name.lower(), ()), links[name], tested, open_to_nulls)
        for name in in_order(links)
    }
    asked = conditions_of(parts, constants)
    conditions = asked.without(kind.unmet, seed)
    filling = Filling(parts, conditions, kind, rng)
    for name, part in parts.items():
        if part.given:
            filling.fill(name)
            if used:
                bring_together(filling, name, used)
            lead(filling, name, number)
            if used and filling.rows[name] and number % 4 == 2:  # not always: a small type cannot hold a sum
                dominate(filling, name, used)
            part.mend([made.values for made in filling.rows[name]], rng)
    filling.close_circles()
    kept = sound({name: _held(filling, name, part) for name, part in parts.items()}, schema)
    aimed = aim(parts, kept, thresholds, asked, number, rng)
    if aimed is not kept:
        kept = sound(aimed, schema)
    for part in parts.values():
        part.checks.close()
    for left in kept.values():
        rng.shuffle(left)  # the order of rows must not depend on their roles
    return kept


def _held(filling: Filling, table: str, part: Part) -> list[list[Any]]:
    """The rows of a table for which its CHECKs hold; those that satisfy all conditions come first, and are kept."""
    rows = sorted(filling.rows.get(table, ()), key=lambda one: one.role is not Role.SATISFIES_ALL)
    return [one.values for one in rows if part.checks.hold(one.values)]
