"""Change drawn rows of a table, so that they reveal mistakes which independent columns hide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Any

from rlfactory_nl2sql.checks.constants import Constant, Uses
from rlfactory_nl2sql.instances.conditions import around
from rlfactory_nl2sql.instances.domains import Kind, comparable
from rlfactory_nl2sql.instances.links import Link, places_in
from rlfactory_nl2sql.instances.rows import Filling, Missed, Role

_TOGETHER = 0.3  # the share of rows in which two columns have neighbouring values
_MANY = 8  # values of a column: fewer would become nearly equal without the greatest and the least


class Revealing:
    """The rows of one table of ``filling``, which the methods change."""

    def __init__(self, filling: Filling, name: str) -> None:
        part = filling.parts[name]
        self._filling, self._part, self._made, self._rng = filling, part, filling.rows[name], filling.rng
        self._domains, self._free, self._links = part.domains, part.free, part.links
        self._bound = filling.conditions.bound(name)  # the columns with conditions

    def reveal(self, used: Uses | None, number: int) -> None:
        """Change the rows so that they show what independent columns hide; the arguments are those of `vary`."""
        if used:
            self._bring_together(list(self._compared(used)))
        self._lead(number)
        if used and used.aggregated and self._made and number % 8 == 2:  # not always: a small type cannot hold a sum
            self._dominate([place for place in places_in(self._part.table, used.aggregated) if place in self._free])

    def _compared(self, used: Uses) -> Iterator[tuple[int, Callable[[Sequence[Any]], Any]]]:
        """Free columns, each with what finds a value it is compared with, in its row or in one that this refers to."""
        table, parts = self._part.table, self._filling.parts
        for one, other in sorted(used.compared):
            for place in (place for place in places_in(table, [one]) if place in self._free):
                yield from ((place, itemgetter(at)) for at in places_in(table, [other]))
                for link in self._links:
                    targets = [made.values for made in self._filling.rows.get(link.target, ())]
                    there = {tuple(row[at] for at in link.target_places): row for row in targets}
                    for at in places_in(parts[link.target].table, [other]):
                        yield place, partial(_beyond, link, there, at)

    def _bring_together(self, compared: Sequence[tuple[int, Callable[[Sequence[Any]], Any]]]) -> None:
        """Give some rows, in a column that a query compares with another one, a value at or beside the other's."""
        for row in (made.values for made in self._made):
            if compared and self._rng.random() < _TOGETHER:
                place, other = self._rng.choice(compared)
                domain, value = self._domains[place], other(row)
                if domain.kind in {Kind.NUMBER, Kind.DATE}:
                    near = [one for one in around(domain, Constant(None, None, "=", value)) if domain.may_hold(one)]
                    equal = [one for one in near if one == value]
                    row[place] = self._rng.choice(self._rng.choice((equal, near)) or near or [row[place]])

    def _lead(self, number: int) -> None:
        """Give two rows of a group the greatest and the least value of a column, which no other row then has.

        If a query wrongly includes or leaves out the group, its MIN, MAX, DISTINCT and first rows differ. Each column
        has another group, and others with another ``number``. Without such a group, any two rows have them, in a column
        of many values. Columns with conditions keep their values.
        """
        found = [kinds for group in self._groups() if (kinds := [rows for rows in group if rows])]
        groups = found or [[[made.values for made in self._made]]]
        for place in self._free if self._made else ():
            rows = [made.values for made in self._made if made.values[place] is not None]
            values = sorted({comparable(row[place]): row[place] for row in rows}.values(), key=_order)
            if place in self._bound or len(values) < (3 if found else _MANY):
                continue
            least, *middle, greatest = values
            for row in rows:
                if row[place] in (least, greatest):
                    row[place] = self._rng.choice(middle)
            turn, at = divmod(number + place, len(groups))
            kinds = groups[at]
            first = self._rng.choice(kinds[turn % len(kinds)])
            others = [row for row in kinds[(turn + 1) % len(kinds)] if row is not first]
            first[place] = greatest
            for row in self._rng.sample(others, min(len(others), 1)):
                row[place] = least

    def _dominate(self, places: Sequence[int]) -> None:
        """In each column make one row's number as much as all others together, and another row's half of it in all.

        So one group has the greatest sum of a column, and perhaps another one that of a product of columns. Where a
        second row refers to the same row as the first, it has as much, and a row of another group has the greatest
        single number.
        """
        rows = [made.values for made in self._made]
        numbers = [place for place in places if self._domains[place].is_quantity]
        common, *leaders = self._rng.sample(rows, min(len(rows), 1 + len(numbers)))
        for place, leader in zip(numbers, leaders, strict=False):
            values = (made.values[place] for made in self._made)
            leader[place] = total = sum(abs(one) for one in values if isinstance(one, type(self._domains[place].step)))
            half = total // 2 if isinstance(total, int) else total / 2
            if len(numbers) > 1:
                common[place] = half
            for link in self._rng.sample(self._links, min(len(self._links), 1)):
                beside = [row for row in rows if row is not leader and link.at(row) == link.at(leader)]
                elsewhere = [row for row in rows if row is not common and link.at(row) != link.at(leader)]
                if beside and elsewhere:
                    self._rng.choice(beside)[place] = total
                    self._rng.choice(elsewhere)[place] = total + half

    def _groups(self) -> Iterator[list[list[list[Any]]]]:
        """Rows that mistakes include or leave out, by kinds: at an edge, missing the same condition, and with NULLs."""
        for place, boundary in self._bound.items():
            for role, side in ((Role.SATISFIES_ALL, boundary.inside), (Role.MISSES_ONE, boundary.beside)):
                rows = [one.values for one in self._made if one.role is role]
                yield [[row for row in rows if row[place] == value] for value in side[0]] if side else []
        missing: dict[Missed, list[list[Any]]] = {}
        for one in self._made:
            if one.role is Role.MISSES_ONE:
                missing.setdefault(one.missed, []).append(one.values)
        yield from ([rows] for rows in missing.values())
        asked = self._part.nulls_matter
        yield [[one.values for one in self._made if any(one.values[place] is None for place in asked)]]


def _order(value: Any) -> tuple[int, Any]:
    """A sort key: numbers first, then all other values by their text."""
    return (0, value) if isinstance(value, int | float | Decimal) else (1, str(value))


def _beyond(link: Link, there: Mapping[Any, Sequence[Any]], at: int, row: Sequence[Any]) -> Any:
    target = there.get(link.at(row))
    return None if target is None else target[at]
