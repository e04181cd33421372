"""Make a varied database of the same schema, which distinguishes the gold query from queries right by accident.

The idea comes from test suites for text-to-SQL (Zhong, Yu, Klein 2020, arXiv 2010.02840), which are many random
databases, of which those are kept that distinguish most mutations. Here each database is planned: some rows satisfy all
conditions of the gold query and refer to each other, some miss one condition by little, the others are random. So a few
small databases are enough, and they take milliseconds for each gold query.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import permutations
from typing import Any

from rlfactory_nl2sql.checks.constants import Constant, TableColumn
from rlfactory_nl2sql.connection import Row, TableRows
from rlfactory_nl2sql.instances.characters import CHARACTERS, character
from rlfactory_nl2sql.instances.checks import Checks
from rlfactory_nl2sql.instances.columns import order
from rlfactory_nl2sql.instances.demands import NULL_TESTS, Demands, around, demands_of
from rlfactory_nl2sql.instances.domains import Domain, Kind, learn
from rlfactory_nl2sql.instances.filling import Filling
from rlfactory_nl2sql.instances.links import Keys, in_order, links_of, sound
from rlfactory_nl2sql.schema import Schema, Table

_MENDING = 8  # tries to satisfy the CHECKs of a row
_TOGETHER = 0.3  # the share of rows in which two columns have neighbouring values
_ORDERED = frozenset({Kind.INTEGER, Kind.REAL, Kind.ISO_DATE, Kind.MOMENT})
SHARES = (0.9, 0.75, 0.5)
"""The shares of rows to try. With many, the query's result is seldom empty; with few, it differs most."""


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
            columns unless they refer to others, rows in which two columns hold the same value or neighbouring ones, and
            the greatest and least values of columns in rows with NULLs. In each second database, one row's value in
            one of these columns is more than all others together.
    """
    tables = {table.name: table for table in schema.tables if not table.view}
    given = {name.lower(): rows for name, rows in data.items()}
    links = links_of(schema)
    checks = {name: Checks(table) for name, table in tables.items()}
    references = {name: {place for link in links[name] for place in link.places} for name in tables}
    asked_for_null = _asked_for_null(tables, references, constants, aggregated or ())
    domains = {name: _learnt(tables[name], given, checks[name], asked_for_null[name]) for name in tables}
    rng = random.Random(f"{seed} {number}")
    kind = character(number)
    demands = _without(demands_of(tables, domains, links, constants), kind.unmet, seed)
    summed = sorted(aggregated or ()) if number % 2 == 0 else []  # not always: a small type cannot hold a sum
    dominated = summed and [summed[number // len(CHARACTERS) % len(summed)]]
    filling = Filling(tables, domains, links, demands, kind, rng)
    for name in in_order(links):
        if given.get(name.lower()):
            filling.fill(name)
            made, fixed = filling.rows[name], references[name] | Keys(tables[name]).places
            if aggregated is not None:
                free = [at for at, one in enumerate(domains[name]) if at not in fixed and one.kind in _ORDERED]
                _bring_together(made, domains[name], free, rng)
                _lead(made, free, asked_for_null[name], _places(tables[name], dominated), rng)
            _mend(made, given[name.lower()], checks[name], fixed, rng)
    filling.close_circles()
    held = {name: [row for row in made if not checks[name].broken(row)] for name, made in filling.rows.items()}
    rows = sound(held, tables, links)
    for check in checks.values():
        check.close()
    for kept in rows.values():
        rng.shuffle(kept)  # the order of rows must not depend on their roles
    return {name: [tuple(row) for row in rows.get(name, ())] for name in tables}


def _asked_for_null(
    tables: Mapping[str, Table],
    references: Mapping[str, set[int]],
    constants: Sequence[Constant],
    aggregated: Collection[TableColumn],
) -> dict[str, set[int]]:
    """The places of each table's columns that have to have NULLs: queries test for them, or an aggregate skips them."""
    tested = {
        ((one.table or "").lower(), (one.column or "").lower()) for one in constants if one.operator in NULL_TESTS
    }
    return {
        name: _places(table, tested) | (_places(table, aggregated) - references[name]) for name, table in tables.items()
    }


def _learnt(table: Table, given: TableRows, checks: Checks, asked_for_null: Collection[int]) -> tuple[Domain, ...]:
    """The domains of a table's columns, from its given rows."""
    rows = given.get(table.name.lower(), ())
    return tuple(
        learn(column, [row[place] for row in rows], partial(checks.allows, place), nulls_matter=place in asked_for_null)
        for place, column in enumerate(table.columns)
    )


def _without(demands: Demands, unmet: int | None, seed: int) -> Demands:
    """Of the conditions in an order by ``seed``, no row meets this one; None: each is met."""
    if unmet is None:
        return demands
    demands = demands.unsized()
    conditions = random.Random(seed).sample(list(demands.boundaries), len(demands.boundaries))
    return demands.unmet(conditions[unmet]) if unmet < len(conditions) else demands


def _bring_together(
    rows: Sequence[list[Any]], domains: Sequence[Domain], free: Sequence[int], rng: random.Random
) -> None:
    """Give some rows, in one of two columns of a kind, a value at or beside the other's."""
    pairs = [(one, other) for one, other in permutations(free, 2) if domains[one].kind is domains[other].kind]
    for row in rows:
        if pairs and rng.random() < _TOGETHER:
            one, other = rng.choice(pairs)
            near = [] if row[one] is None else list(around(domains[other], Constant(None, None, "=", row[one])))
            row[other] = rng.choice([value for value in near if domains[other].allows(value)] or [row[other]])


def _lead(
    rows: Sequence[list[Any]],
    free: Sequence[int],
    asked: Collection[int],
    dominated: Collection[int],
    rng: random.Random,
) -> None:
    """Let other rows come first by each free column. A LIMIT then shows by what a query orders, and what it leaves out.

    Rows with a NULL in one of the ``asked`` columns get the greatest and the least value. In ``dominated`` ones, one
    row's value is more than all others together.
    """
    for at in free:
        ranked = sorted((row for row in rows if row[at] is not None), key=lambda row: order(row[at]))
        with_null = [row for row in ranked if any(row[place] is None for place in asked)]
        for first, other in zip(
            (ranked[-1:] + ranked[:1]), rng.sample(with_null, min(len(with_null), 2)), strict=False
        ):
            first[at], other[at] = other[at], first[at]
        if at in dominated and ranked and all(isinstance(row[at], int | float | Decimal) for row in ranked):
            rng.choice(ranked)[at] = sum(abs(row[at]) for row in ranked)


def _places(table: Table, columns: Collection[TableColumn]) -> set[int]:
    return {at for at, column in enumerate(table.columns) if (table.name.lower(), column.name.lower()) in columns}


def _mend(
    rows: Sequence[list[Any]], given: Sequence[Row], checks: Checks, fixed: Collection[int], rng: random.Random
) -> None:
    """Give the columns of a CHECK that does not hold the values of a given row, for which it holds, unless ``fixed``.

    A row for which no CHECK can be mended is left out later.
    """
    for row in rows:
        for _ in range(_MENDING):
            broken = [place for place in checks.broken(row) if place not in fixed]
            if not broken:
                break
            model = rng.choice(given)
            for place in broken:
                row[place] = model[place]


def subsample(schema: Schema, data: TableRows, share: float, seed: int) -> TableRows:
    """A share of each table's rows, without those that would then refer to a missing row.

    A table of several rows loses at least one, so that no table has as many rows as in the given database.
    """
    rng = random.Random(f"{seed} {share}")
    tables = {table.name: table for table in schema.tables if not table.view}
    given = {name.lower(): rows for name, rows in data.items()}
    kept = {}
    for name in tables:
        rows = given.get(name.lower(), ())
        count = max(min(round(len(rows) * share), len(rows) - 1), min(len(rows), 1))
        kept[name] = [rows[at] for at in sorted(rng.sample(range(len(rows)), count))]
    found = sound(kept, tables, links_of(schema))
    return {name: [tuple(row) for row in rows] for name, rows in found.items()}
