"""Change drawn rows of a table, so that they reveal mistakes which independent columns hide."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import permutations
from typing import Any

from rlfactory_nl2sql.checks.constants import Constant
from rlfactory_nl2sql.instances.characters import Role
from rlfactory_nl2sql.instances.conditions import Boundary, around
from rlfactory_nl2sql.instances.domains import Domain, Kind, comparable
from rlfactory_nl2sql.instances.filling import Made, Missed

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
        kinds = {place: self.domains[place].kind for place in self.free if not self.domains[place].closed}
        able = [place for place, kind in kinds.items() if kind in {Kind.NUMBER, Kind.DATE}]
        pairs = [(one, other) for one, other in permutations(able, 2) if kinds[one] is kinds[other]]
        for row in (made.values for made in self.made):
            if pairs and self.rng.random() < _TOGETHER:
                one, other = self.rng.choice(pairs)
                domain, near = self.domains[other], Constant(None, None, "=", row[one])
                values = (
                    [value for value in around(domain, near) if domain.accepts(value)] if row[one] is not None else []
                )
                row[other] = self.rng.choice(values or [row[other]])

    def lead(self, bound: Mapping[int, Boundary], asked: Collection[int], number: int) -> None:
        """Give two rows of a group the greatest and the least value of a column, which no other row then has.

        If a query wrongly includes or leaves out the group, its MIN, MAX, DISTINCT and first rows differ. Each column
        has another group, and others with another ``number``.

        Args:
            bound: the columns with conditions, which keep their values.
            asked: the columns in which NULLs matter.
        """
        groups = [group for group in self._groups(bound, asked) if group]
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
        columns. The rows are among those that are ``joined``, since a join leaves others out.
        """
        numbers = [
            place
            for place in places
            if all(isinstance(made.values[place], int | float | Decimal | None) for made in self.made)
        ]
        rows = [made.values for made in joined or self.made]
        if not rows:
            return
        common, *leaders = self.rng.sample(rows, min(len(rows), 1 + len(numbers)))
        for place, leader in zip(numbers, leaders, strict=False):
            total = sum(abs(made.values[place] or 0) for made in self.made)
            leader[place] = total
            if len(numbers) > 1:
                common[place] = total // 2 if isinstance(total, int) else total / 2

    def _groups(self, bound: Mapping[int, Boundary], asked: Collection[int]) -> Iterator[list[list[Any]]]:
        """Rows that mistakes include or leave out: at an edge, missing the same condition, and with NULLs."""
        for place, edge in ((place, boundary.inside[0]) for place, boundary in bound.items() if boundary.inside):
            yield [one.values for one in self.made if one.role is Role.SATISFIES_ALL and one.values[place] in edge]
        missing: dict[Missed, list[list[Any]]] = {}
        for one in self.made:
            if one.role is Role.MISSES_ONE:
                missing.setdefault(one.missed, []).append(one.values)
        yield from missing.values()
        yield [one.values for one in self.made if any(one.values[place] is None for place in asked)]


def _order(value: Any) -> tuple[int, Any]:
    """A sort key: numbers first, then all other values by their text."""
    return (0, value) if isinstance(value, int | float | Decimal) else (1, str(value))
