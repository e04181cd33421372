"""Change drawn rows of a table, so that they reveal mistakes which independent columns hide."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rlfactory_nl2sql.checks.constants import Constant
from rlfactory_nl2sql.instances.characters import Role
from rlfactory_nl2sql.instances.conditions import Boundary, around
from rlfactory_nl2sql.instances.domains import Domain, Kind, comparable
from rlfactory_nl2sql.instances.links import Link
from rlfactory_nl2sql.instances.rows import Made, Missed

_TOGETHER = 0.3  # the share of rows in which two columns have neighbouring values
_MANY = 8  # values of a column: fewer would become nearly equal without the greatest and the least

Comparand = Callable[[Sequence[Any]], Any]
"""Finds the value that a query compares with one of a row."""


@dataclass(frozen=True, slots=True)
class Revealing:
    """The rows of one table, which the methods change."""

    made: Sequence[Made]
    domains: Sequence[Domain]
    free: Sequence[int]  # the places of columns that are neither keys nor references
    rng: random.Random

    def bring_together(self, compared: Sequence[tuple[int, Comparand]]) -> None:
        """Give some rows, in a column that a query compares with another one, a value at or beside the other's.

        Args:
            compared: places of columns, each with what finds a row's other value.
        """
        for row in (made.values for made in self.made):
            if compared and self.rng.random() < _TOGETHER:
                place, other = self.rng.choice(compared)
                domain, value = self.domains[place], other(row)
                if domain.kind in {Kind.NUMBER, Kind.DATE}:
                    near = [one for one in around(domain, Constant(None, None, "=", value)) if domain.accepts(one)]
                    equal = [one for one in near if one == value]
                    row[place] = self.rng.choice(self.rng.choice((equal, near)) or near or [row[place]])

    def lead(self, bound: Mapping[int, Boundary], asked: Collection[int], number: int) -> None:
        """Give two rows of a group the greatest and the least value of a column, which no other row then has.

        If a query wrongly includes or leaves out the group, its MIN, MAX, DISTINCT and first rows differ. Each column
        has another group, and others with another ``number``. Without such a group, any two rows have them, in a column
        of many values.

        Args:
            bound: the columns with conditions, which keep their values.
            asked: the columns in which NULLs matter.
        """
        found = [kinds for group in self._groups(bound, asked) if (kinds := [rows for rows in group if rows])]
        groups = found or [[[made.values for made in self.made]]]
        for place in self.free if self.made else ():
            rows = [made.values for made in self.made if made.values[place] is not None]
            values = sorted({comparable(row[place]): row[place] for row in rows}.values(), key=_order)
            if place in bound or len(values) < (3 if found else _MANY):
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

    def reach(self, constant: Constant, place: int, links: Sequence[Link], number: int) -> None:
        """Where a condition is on a sum or an average of a column, make it exactly equal in one group.

        This is done for groups by each reference and by each free column. If ``number`` is even, only the rows that
        satisfy all conditions count as a group's.
        """
        domain, asked = self.domains[place], Decimal("NaN")
        with suppress(ArithmeticError):  # it is no number
            asked = Decimal(str(constant.value))
        if domain.closed or not asked.is_finite():
            return
        satisfying = [made.values for made in self.made if number % 2 or made.role is Role.SATISFIES_ALL]
        numbers = [row for row in satisfying if isinstance(row[place], type(domain.step))]
        rows = [row for row in numbers if Decimal(str(row[place])).is_finite()]
        done: set[int] = set()
        for places in (*(link.places for link in links), *((other,) for other in self.free if other != place)):
            groups: dict[Any, list[list[Any]]] = {}
            for row in rows:
                groups.setdefault(tuple(row[one] for one in places), []).append(row)
            for group in sorted(groups.values(), key=len):
                total = asked * len(group) if constant.operator.startswith("avg") else asked
                rest = total - sum(Decimal(str(row[place])) for row in group[1:])
                value = round(type(domain.step)(rest), domain.decimals) if domain.decimals else type(domain.step)(rest)
                exact = Decimal(str(value)) == rest and value >= domain.ends[0] and domain.accepts(value)
                if exact and done.isdisjoint(map(id, group)):
                    group[0][place] = value
                    done.update(map(id, group))
                    break

    def dominate(self, places: Sequence[int], joined: Sequence[Made], links: Sequence[Link]) -> None:
        """In each column make one row's number as much as all others together, and another row's half of it in all.

        So one group has the greatest sum of a column, and perhaps another one that of a product of columns. Where a
        second row refers to the same row as the first, it has as much, and a row of another group has the greatest
        single number. The rows are among those that are ``joined``, since a join leaves others out.
        """
        rows = [made.values for made in joined]
        numbers = [place for place in places if self.domains[place].kind is Kind.NUMBER]
        common, *leaders = self.rng.sample(rows, min(len(rows), 1 + len(numbers)))
        for place, leader in zip(numbers, leaders, strict=False):
            values = (made.values[place] for made in self.made)
            leader[place] = total = sum(abs(one) for one in values if isinstance(one, type(self.domains[place].step)))
            half = total // 2 if isinstance(total, int) else total / 2
            if len(numbers) > 1:
                common[place] = half
            for link in self.rng.sample(links, min(len(links), 1)):
                beside = [row for row in rows if row is not leader and link.at(row) == link.at(leader)]
                elsewhere = [row for row in rows if row is not common and link.at(row) != link.at(leader)]
                if beside and elsewhere:
                    self.rng.choice(beside)[place] = total
                    self.rng.choice(elsewhere)[place] = total + half

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
