"""Kinds of varied databases, which reveal different mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """The purpose of a row."""

    SATISFIES_ALL = "satisfies all"  # meets all conditions of the gold query on its table
    MISSES_ONE = "misses one"  # meets all conditions but one, and nearly meets that one
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Character:
    """A kind of database."""

    rows: int  # of a table that refers to no other
    growth: float  # factor of the number of rows, for each reference between a table and such a table
    values: int  # to draw from, for a column that is no key; half of them are new
    nulls: float  # the share of NULLs in columns that have NULLs
    barren: float  # the share of rows to which no row refers
    even: bool = False  # whether values and references are equally frequent
    unmet: int | None = None  # which of the gold query's conditions no row meets; None: each is met


# Few values, many equal ones. They reveal double counting, and a missing DISTINCT or GROUP BY.
REPEATED = Character(rows=14, growth=1.8, values=4, nulls=0.25, barren=0.3)
# Many values, few equal ones. They reveal a wrong column, order or LIMIT.
DIVERSE = Character(rows=26, growth=1.6, values=30, nulls=0.12, barren=0.2)
# Few references, some tables nearly empty. They reveal mistakes in outer joins, empty groups and empty results.
SPARSE = Character(rows=12, growth=0.3, values=12, nulls=0.3, barren=0.75, unmet=0)
# Rows and groups that hardly differ. They reveal mistakes with ties, averages and equal sums.
TIED = Character(rows=8, growth=1, values=1, nulls=0.5, barren=0, unmet=1)
# Groups of the same size, of which several are the largest.
EVEN = Character(rows=8, growth=1, values=2, nulls=0.5, barren=0, even=True)

# Most of the mistakes that are hard to see are seen in the first two kinds only.
CHARACTERS: Sequence[Character] = (REPEATED, DIVERSE, SPARSE, TIED, REPEATED, DIVERSE, EVEN, DIVERSE)


def character(number: int) -> Character:
    """The character of instance 1, 2, 3 and so on."""
    return CHARACTERS[(number - 1) % len(CHARACTERS)]
