"""What kind of database an instance is: different ones find different mistakes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """What a row is for."""

    WITNESS = "witness"  # meets all conditions of the gold query on its table
    NEAR = "near"  # meets all but one, and that one narrowly not
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Character:
    """One kind of database."""

    rows: int  # of a table that others refer to and that refers to none
    growth: float  # how many times more or fewer rows a table holds that refers to such a one, and so on
    distinct: tuple[int, int]  # a column that is no key draws from at least and at most so many values
    invented: float  # the share of these that the column did not hold
    nulls: float  # the share of NULLs in columns that held some
    barren: float  # the share of rows that no row refers to
    even: bool  # whether the rest is referred to equally often
    apart: int | None  # which end of the gold query's conditions (see `Boundary.ends`) lies with values of its own
    unmet: int | None  # which of the gold query's conditions no row meets, where it has so many; None: each is met


CHARACTERS: Sequence[Character] = (
    # Few values, many equal ones: what counts twice, what a missing DISTINCT or GROUP BY changes.
    Character(14, 1.8, (3, 4), invented=0.3, nulls=0.25, barren=0.3, even=False, apart=0, unmet=None),
    # Many values, few equal ones: what a wrong column, order or LIMIT changes.
    Character(26, 1.6, (30, 30), invented=0.5, nulls=0.12, barren=0.2, even=False, apart=1, unmet=None),
    # Few references, some tables nearly empty: what an outer join, an empty group or nothing found changes.
    Character(12, 0.3, (12, 12), invented=0.5, nulls=0.3, barren=0.75, even=True, apart=None, unmet=0),
    # Rows and groups that hardly differ: what the order of ties changes, and what equals an average or another's sum.
    Character(8, 1, (1, 1), invented=0.5, nulls=0.5, barren=0, even=True, apart=None, unmet=1),
)


def character(number: int) -> Character:
    """The character of instance 1, 2, 3, …"""
    return CHARACTERS[(number - 1) % len(CHARACTERS)]
