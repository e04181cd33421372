"""Closed sub-samples of the given rows."""

from __future__ import annotations

import random

from rlfactory_nl2sql.connection import TableRows
from rlfactory_nl2sql.instances.links import links_of, sound
from rlfactory_nl2sql.schema import Schema

SHARES = (0.9, 0.75, 0.5)
"""The shares of rows to try. With many, the query's result is seldom empty; with few, it differs most."""


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
