"""What an instance's rows must have, given the gold query's constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rlfactory_nl2sql.checks.constants import Constant
from rlfactory_nl2sql.instances.boundaries import Boundary, boundary
from rlfactory_nl2sql.instances.domains import Domain
from rlfactory_nl2sql.instances.links import Link
from rlfactory_nl2sql.schema import Table

_MOST_SHOWN = 60  # for a larger LIMIT no rows are added
_MOST_GROUPED = 140  # limit of the rows in all groups together


@dataclass(frozen=True, slots=True)
class Demands:
    """Requirements of the rows."""

    boundaries: Mapping[tuple[str, int], Boundary]  # by table and place of the column
    groups: tuple[int, ...]  # at and beside the sizes in the query's conditions on COUNT
    least: int  # the sum of OFFSET and LIMIT; the answer should have more rows. 0: no requirement

    def unsized(self) -> Demands:
        """Without requirements of numbers of rows."""
        return replace(self, groups=(), least=0)

    def unmet(self, at: tuple[str, int]) -> Demands:
        """With one boundary that has no row inside."""
        return replace(self, boundaries={**self.boundaries, at: replace(self.boundaries[at], inside=(), ends=())})


def demands_of(
    tables: Mapping[str, Table],
    domains: Mapping[str, Sequence[Domain]],
    links: Mapping[str, Sequence[Link]],
    constants: Sequence[Constant],
) -> Demands:
    """The requirements that follow from the constants.

    A condition on a column that refers to another column applies to that one, because the values come from it.
    """
    places = {
        (name.lower(), column.name.lower()): (name, place)
        for name, table in tables.items()
        for place, column in enumerate(table.columns)
    }
    asked: dict[tuple[str, int], list[Constant]] = {}
    for constant in constants:
        named = places.get(((constant.table or "").lower(), (constant.column or "").lower()))
        if named is not None:
            asked.setdefault(_origin(named, links), []).append(constant)
    found = {at: boundary(domains[at[0]][at[1]], mine) for at, mine in asked.items()}
    boundaries = {at: one for at, one in found.items() if one is not None}
    shown = [int(one.value) for one in constants if one.operator in {"limit", "offset"}]
    return Demands(boundaries, _groups(constants), sum(shown) if sum(shown) <= _MOST_SHOWN else 0)


def _origin(named: tuple[str, int], links: Mapping[str, Sequence[Link]]) -> tuple[str, int]:
    """The column at the end of a column's links, from which its values come."""
    seen = {named}
    while True:
        table, place = named
        steps = [
            (link.target, to)
            for link in links[table]
            for of, to in zip(link.places, link.target_places, strict=True)
            if of == place and (link.target, to) not in seen
        ]
        if not steps:
            return named
        named = steps[0]
        seen.add(named)


def _groups(constants: Sequence[Constant]) -> tuple[int, ...]:
    asked = [int(one.value) for one in constants if one.operator.startswith("count")]
    sizes = dict.fromkeys(max(count + more, 1) for count in asked for more in (1, 0, 2, -1))
    kept: list[int] = []
    for size in sizes:
        if sum(kept) + size <= _MOST_GROUPED:
            kept.append(size)
    return tuple(kept)
