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
from rlfactory_nl2sql.instances.rows import Made, Missed

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

    def lead(self, bound: Mapping[int, Boundary], asked: Collection[int], number: int) -> None:
        """Give two rows of a group the greatest and the least value of a column, which no other row then has.

        If a query wrongly includes or leaves out the group, its MIN, MAX, DISTINCT and first rows differ. Each column
        has another group, and others with another ``number``.

        Args:
            bound: the columns with conditions, which keep their values.
            asked: the columns in which NULLs matter.
        """
        groups = [kinds for group in self._groups(bound, asked) if (kinds := [rows for rows in group if rows])]
        for place in self.free if groups else ():
            rows = [made.values for made in self.made if made.values[place] is not None]
            values = sorted({comparable(row[place]): row[place] for row in rows}.values(), key=_order)
            if place in bound or len(values) < 3:
                continue
            least, *middle, greatest = values
            for row in rows:
                if row[place] in (least, greatest):
                    row[place] = self.rng.choice(middle)
            turn, at = divmod(number + place, len(groups))
            kinds = groups[at]
            first = self.rng.choice(kinds[turn % len(kinds)])
            others = [row for row in kinds[(turn + 1) % len(kinds)] if row is not first]
            first[place] = greatest
            for row in self.rng.sample(others, min(len(others), 1)):
                row[place] = least

    def dominate(self, places: Sequence[int], joined: Sequence[Made]) -> None:
        """In each column make one row's number as much as all others together, and another row's half of it in all.

        So one group has the greatest sum and average of a column, and perhaps another one those of a product of
        columns. The rows are among those that are ``joined``, since a join leaves others out.
        """
        rows = [made.values for made in joined]
        numbers = [place for place in places if self.domains[place].kind is Kind.NUMBER]
        common, *leaders = self.rng.sample(rows, min(len(rows), 1 + len(numbers)))
        for place, leader in zip(numbers, leaders, strict=False):
            values = (made.values[place] for made in self.made)
            leader[place] = total = sum(abs(one) for one in values if isinstance(one, type(self.domains[place].step)))
            if len(numbers) > 1:
                common[place] = total // 2 if isinstance(total, int) else total / 2

    def _groups(self, bound: Mapping[int, Boundary], asked: Collection[int]) -> Iterator[list[list[list[Any]]]]:
        """Rows that mistakes include or leave out, by kinds: at an edge, missing the same condition, and with NULLs."""
        for place, boundary in bound.items():
            for role, side in ((Role.SATISFIES_ALL, boundary.inside), (Role.MISSES_ONE, boundary.beside)):
                rows = [one.values for one in self.made if one.role is role]
                yield [[row for row in rows if row[place] == value] for value in side[0]] if side else []
        missing: dict[Missed, list[list[Any]]] = {}
        for one in self.made:
            if one.role is Role.MISSES_ONE:
                missing.setdefault(one.missed, []).append(one.values)
        yield from ([rows] for rows in missing.values())
        yield [[one.values for one in self.made if any(one.values[place] is None for place in asked)]]


def _order(value: Any) -> tuple[int, Any]:
    """A sort key: numbers first, then all other values by their text."""
    return (0, value) if isinstance(value, int | float | Decimal) else (1, str(value))
