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
from rlfactory_nl2sql.instances.rows import Filling, Role

_TOGETHER = 0.3  # the share of rows in which two columns have neighbouring values


def lead(filling: Filling, name: str, number: int) -> None:
    """Give two rows of a group the greatest and the least value of a column, which no other row then has.

    Groups are rows that mistakes include or leave out: if a query does, its MIN, MAX, DISTINCT and first rows differ.
    Each column has another group, and others with another ``number``. Columns with conditions keep their values.
    """
    part, rng, made = filling.parts[name], filling.rng, filling.rows[name]
    bound = filling.conditions.bound(name)
    sides = [(at, side[0]) for at, one in bound.items() for side in (one.inside, one.beside) if side]
    groups = [[one.values for one in made if one.values[at] in values] for at, values in sides]  # at an edge
    groups.append([one.values for one in made if one.role is Role.MISSES_ONE])
    groups.append([one.values for one in made if any(one.values[place] is None for place in part.nulls_matter)])
    groups = [group for group in groups if group] or [[one.values for one in made]]
    for place in part.free:
        rows = [one.values for one in made if one.values[place] is not None]
        values = sorted({comparable(row[place]): row[place] for row in rows}.values(), key=_order)
        if place not in bound and len(values) > 2:
            least, *middle, greatest = values
            for row in rows:
                if row[place] in (least, greatest):
                    row[place] = rng.choice(middle)
            group = groups[(number + place) % len(groups)]
            for row, value in zip(rng.sample(group, min(len(group), 2)), (greatest, least), strict=False):
                row[place] = value


def _order(value: Any) -> tuple[int, Any]:
    """A sort key: numbers first, then all other values by their text."""
    return (0, value) if isinstance(value, int | float | Decimal) else (1, str(value))


def bring_together(filling: Filling, name: str, used: Uses) -> None:
    """Give some rows, in a column that a query compares with another one, a value at or beside the other's."""
    rng, domains, compared = filling.rng, filling.parts[name].domains, list(_compared(filling, name, used))
    for row in (made.values for made in filling.rows[name]):
        if compared and rng.random() < _TOGETHER:
            place, other = rng.choice(compared)
            domain, value = domains[place], other(row)
            if domain.kind in {Kind.NUMBER, Kind.DATE}:
                near = [one for one in around(domain, Constant(None, None, "=", value)) if domain.may_hold(one)]
                equal = [one for one in near if one == value]
                row[place] = rng.choice(rng.choice((equal, near)) or near or [row[place]])


def _compared(filling: Filling, name: str, used: Uses) -> Iterator[tuple[int, Callable[[Sequence[Any]], Any]]]:
    """Free columns, each with what finds a value it is compared with, in its row or in one that this refers to."""
    part, parts = filling.parts[name], filling.parts
    for one, other in sorted(used.compared):
        for place in (place for place in places_in(part.table, [one]) if place in part.free):
            yield from ((place, itemgetter(at)) for at in places_in(part.table, [other]))
            for link in part.links:
                targets = [made.values for made in filling.rows.get(link.target, ())]
                there = {tuple(row[at] for at in link.target_places): row for row in targets}
                for at in places_in(parts[link.target].table, [other]):
                    yield place, partial(_beyond, link, there, at)


def _beyond(link: Link, there: Mapping[Any, Sequence[Any]], at: int, row: Sequence[Any]) -> Any:
    target = there.get(link.at(row))
    return None if target is None else target[at]


def dominate(filling: Filling, name: str, used: Uses) -> None:
    """In each aggregated column make one row's number as much as all others together, and another row's half of it.

    So one group has the greatest sum of a column, and perhaps another one that of a product of columns. Where a
    second row refers to the same row as the first, it has as much, and a row of another group has the greatest
    single number.
    """
    rng, part, rows = filling.rng, filling.parts[name], [made.values for made in filling.rows[name]]
    known = ((place, part.domains[place]) for place in places_in(part.table, used.aggregated) if place in part.free)
    numbers = [place for place, domain in known if domain.kind is Kind.NUMBER and domain.shape is None]
    common, *leaders = rng.sample(rows, min(len(rows), 1 + len(numbers)))
    for place, leader in zip(numbers, leaders, strict=False):
        values = (row[place] for row in rows)
        leader[place] = total = sum(abs(one) for one in values if isinstance(one, type(part.domains[place].step)))
        half = total // 2 if isinstance(total, int) else total / 2
        if len(numbers) > 1:
            common[place] = half
        for link in rng.sample(part.links, min(len(part.links), 1)):
            beside = [row for row in rows if row is not leader and link.at(row) == link.at(leader)]
            elsewhere = [row for row in rows if row is not common and link.at(row) != link.at(leader)]
            if beside and elsewhere:
                rng.choice(beside)[place] = total
                rng.choice(elsewhere)[place] = total + half
