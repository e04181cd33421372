"""Change drawn rows of a table, so that they reveal mistakes which independent columns hide."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, permutations
from typing import Any

from rlfactory_nl2sql.checks.constants import Constant
from rlfactory_nl2sql.instances.characters import Role
from rlfactory_nl2sql.instances.conditions import Boundary, around
from rlfactory_nl2sql.instances.domains import Domain, Kind, comparable
from rlfactory_nl2sql.instances.rows import Made

_TOGETHER = 0.3  # the share of rows in which two columns have neighbouring values


@dataclass(frozen=True, slots=True)
class Revealing:
    """The rows of one table, which the methods change."""

    made: Sequence[Made]
    domains: Sequence[Domain]
    free: Sequence[int]  # the places of columns that are neither keys nor references
    rng: random.Random

    def bring_together(self) -> None:
        """Give some rows, in one of two columns of a kind, a value at or beside the other's."""
        open_ = [place for place in self.free if not self.domains[place].closed]
        pairs = [
            (one, other)
            for one, other in permutations(open_, 2)
            if self.domains[one].kind is self.domains[other].kind in {Kind.NUMBER, Kind.DATE}
        ]
        for row in (made.values for made in self.made):
            if pairs and self.rng.random() < _TOGETHER:
                one, other = self.rng.choice(pairs)
                domain, near = self.domains[other], Constant(None, None, "=", row[one])
                beside = [value for value in around(domain, near) if domain.accepts(value)]
                row[other] = self.rng.choice(beside or [row[other]])

    def pair(self, bound: Collection[int]) -> None:
        """Give the first row a value of its own, and the next two an equal one, in each column without conditions.

        Many rows refer to these three, so that the largest group by a key is not the largest by a name.
        """
        rows = [made.values for made in self.made]
        for place in [place for place in self.free if place not in bound] if len(rows) > 2 else ():
            first = rows[0][place]
            others = [row[place] for row in rows if row[place] not in (None, first)]
            for row in rows[1:] if others else ():
                row[place] = self.rng.choice(others) if row[place] == first else row[place]
            rows[2][place] = rows[1][place]

    def lead(self, bound: Mapping[int, Boundary], asked: Collection[int], number: int) -> None:
        """Give two rows of a group the greatest and the least value of a column, which no other row then has.

        If a query wrongly includes or leaves out the group, its MIN, MAX, DISTINCT and first rows differ. Each column
        has another group, and others with another ``number``.

        Args:
            bound: the columns with conditions, which keep their values.
            asked: the columns in which NULLs matter.
        """
        groups = self._groups(bound, asked)
        for place in self.free if groups else ():
            rows = [made.values for made in self.made if made.values[place] is not None]
            values = sorted({comparable(row[place]): row[place] for row in rows}.values(), key=_order)
            if place in bound or len(values) < 3:
                continue
            least, *middle, greatest = values
            for row in rows:
                if row[place] in (least, greatest):
                    row[place] = self.rng.choice(middle)
            group = groups[(number + place) % len(groups)]
            for row, value in zip(self.rng.sample(group, min(len(group), 2)), (greatest, least), strict=False):
                row[place] = value

    def dominate(self, places: Sequence[int], joined: Sequence[Made]) -> None:
        """In each column make one row's number as much as all others together, and another row's half of it in all.

        So one group has the greatest sum and average of a column, and perhaps another one those of a product of
        columns. The rows refer to different ones, all of which are ``joined``, since a join leaves out others.
        """
        keys = set(range(len(self.domains))).difference(self.free)
        rows = [made.values for made in self.rng.sample(joined, len(joined))]
        apart = [row for at, row in enumerate(rows) if all(row[key] != one[key] for one in rows[:at] for key in keys)]
        numbers = [place for place in places if self.domains[place].kind is Kind.NUMBER]
        common, *leaders = apart[: 1 + len(numbers)]
        for place, leader in zip(numbers, leaders, strict=False):
            values = (made.values[place] for made in self.made)
            leader[place] = total = sum(abs(one) for one in values if isinstance(one, type(self.domains[place].step)))
            if len(numbers) > 1:
                common[place] = total // 2 if isinstance(total, int) else total / 2

    def _groups(self, bound: Mapping[int, Boundary], asked: Collection[int]) -> list[list[list[Any]]]:
        """Rows that mistakes include or leave out together: with NULLs, near a constant, missing one condition."""
        near = {place: [*chain(*one.inside[:1], *one.beside[:1])] for place, one in bound.items()}
        groups: dict[Any, list[list[Any]]] = {}
        for made in self.made:
            kinds: list[Any] = [
                (place, made.values[place]) for place, values in near.items() if made.values[place] in values
            ]
            kinds += [(None, made.missed)] * (made.role is Role.MISSES_ONE)
            kinds += [(None, None)] * any(made.values[place] is None for place in asked)
            for kind in kinds:
                groups.setdefault(kind, []).append(made.values)
        return list(groups.values())


def _order(value: Any) -> tuple[int, Any]:
    """A sort key: numbers first, then all other values by their text."""
    return (0, value) if isinstance(value, int | float | Decimal) else (1, str(value))
