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
    distinct: tuple[int, int]  # least and greatest number of values to draw from, for a column that is no key
    invented: float  # the share of new values among them
    nulls: float  # the share of NULLs in columns that have NULLs
    barren: float  # the share of rows to which no row refers
    apart: int | None  # which of the boundaries' ends (`Boundary.ends`) has rows with values that no other row has
    unmet: int | None  # which of the gold query's conditions no row meets; None: each is met


CHARACTERS: Sequence[Character] = (
    # Few values, many equal ones. They reveal double counting, and a missing DISTINCT or GROUP BY.
    Character(14, 1.8, (3, 4), invented=0.3, nulls=0.25, barren=0.3, apart=0, unmet=None),
    # Many values, few equal ones. They reveal a wrong column, order or LIMIT.
    Character(26, 1.6, (30, 30), invented=0.5, nulls=0.12, barren=0.2, apart=1, unmet=None),
    # Few references, some tables nearly empty. They reveal mistakes in outer joins, empty groups and empty results.
    Character(12, 0.3, (12, 12), invented=0.5, nulls=0.3, barren=0.75, apart=None, unmet=0),
    # Rows and groups that hardly differ. They reveal mistakes with ties, averages and equal sums.
    Character(8, 1, (1, 1), invented=0.5, nulls=0.5, barren=0, apart=None, unmet=1),
)


def character(number: int) -> Character:
    """The character of instance 1, 2, 3 and so on."""
    return CHARACTERS[(number - 1) % len(CHARACTERS)]
