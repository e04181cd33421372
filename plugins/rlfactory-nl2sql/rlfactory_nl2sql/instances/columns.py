"""Draw the values of columns that are not references."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from decimal import Decimal
from itertools import cycle, islice
from typing import Any

from rlfactory_nl2sql.instances.characters import Character, Role
from rlfactory_nl2sql.instances.demands import Boundary, Demands
from rlfactory_nl2sql.instances.domains import Domain, comparable, distinct, fresh

_UNBOUND = 0.4  # the share of free rows whose value ignores the boundary


class Columns:
    """Draws whole columns of one instance."""

    def __init__(self, character: Character, demands: Demands, rng: random.Random) -> None:
        self._character = character
        self._least = demands.least
        self._groups = demands.groups
        self._rng = rng
        self._salt = rng.getrandbits(32)

    def pool(self, domain: Domain) -> list[Any]:
        """Values to draw from. Columns with the same given values get the same ones, so that joins find rows."""
        size = self._rng.randint(*self._character.distinct)
        size = max(size, self._least + 2 if self._least > 1 else 0)
        new = round(size * self._character.invented)
        known = sorted(domain.known, key=lambda value: zlib.crc32(f"{value!r} {self._salt}".encode("utf-8", "replace")))
        kept = known[: max(size - new, 1)]
        values = list(distinct([*kept, *(domain.invent(self._rng, known) for _ in range(new))]))
        return values if len(values) > 2 else list(distinct([*values, *known]))[:size]

    def draw(
        self,
        domain: Domain,
        boundary: Boundary | None,
        broken: Sequence[bool],
        roles: Sequence[Role],
        nullable: bool,
        apart: Sequence[Sequence[int]] = (),
    ) -> list[Any]:
        """A value for each row, beside the boundary where ``broken``.

        ``apart`` are groups of rows with values that no other row has. The first group gets the extreme values.
        """
        rng, count = self._rng, len(roles)
        if not domain.known:
            return [None] * count
        values = self.pool(domain)
        kept: set[int] = set()
        drawn = rng.choices(values, weights=range(len(values), 0, -1), k=count)  # the first values are more frequent
        if boundary is not None:
            drawn = [
                self._bounded(value, boundary, out, role) for value, out, role in zip(drawn, broken, roles, strict=True)
            ]
            kept = self._reach_ends(drawn, boundary, broken, roles)
        elif self._groups:
            self._group(drawn, values, roles)
        elif len(values) > 2:  # the first row has a value that no other row has
            rare = values.pop()
            drawn = [rare, *(rng.choice(values) if value is rare else value for value in drawn[1:])]
            self._set_apart(drawn, [*values, rare], apart)
        if domain.nulls and nullable and not (boundary and boundary.of_nulls):
            share = self._character.nulls
            drawn = [None if rng.random() < share and at not in kept else value for at, value in enumerate(drawn)]
        return drawn

    def unique(self, domain: Domain, boundary: Boundary | None, roles: Sequence[Role]) -> list[Any]:
        """A different value for each row; None if there are no more."""
        rng = self._rng
        inside = list(boundary.inside) if boundary else []
        beside = list(boundary.beside) if boundary else []
        known = list(domain.known)
        for values in (inside, beside, known):
            rng.shuffle(values)
        kept = known[: round(len(roles) * (1 - self._character.invented)) or 1]
        taken: set[Any] = set()
        drawn: list[Any] = [None] * len(roles)
        by_role = {Role.SATISFIES_ALL: (inside, kept), Role.MISSES_ONE: (beside, kept), Role.RANDOM: (kept, beside)}
        for at in sorted(range(len(roles)), key=lambda at: roles[at] is Role.RANDOM):
            sources = by_role[roles[at]]
            value = next((found for values in sources if (found := _next(values, taken)) is not None), None)
            drawn[at] = fresh(domain, taken, rng) if value is None else value
            taken.add(comparable(drawn[at]))
        return drawn

    def another(self, domain: Domain) -> Any:
        """Another value, for a row that violates a unique constraint."""
        if not domain.known:
            return None
        return self._rng.choice((domain.invent(self._rng), fresh(domain, (), self._rng)))

    def _bounded(self, value: Any, boundary: Boundary, broken: bool, role: Role) -> Any:
        if not boundary.inside:
            return self._rng.choice(boundary.beside)
        if role is Role.RANDOM:
            side = value, *self._rng.choices(boundary.inside + boundary.beside)
            return side[self._rng.random() >= _UNBOUND]
        return self._rng.choice(boundary.beside if broken else boundary.inside)

    def _reach_ends(
        self, drawn: list[Any], boundary: Boundary, broken: Sequence[bool], roles: Sequence[Role]
    ) -> set[int]:
        """Move some rows to each end of the boundary, and the broken ones just outside. Returns the moved rows."""
        reached: set[int] = set()
        for asked in (Role.SATISFIES_ALL, Role.MISSES_ONE):
            rows = [at for at, role in enumerate(roles) if role is asked and not broken[at]]
            for end in boundary.ends if len(rows) > 2 * len(boundary.ends) else ():
                for at in self._rng.sample(rows, 2):
                    rows.remove(at)
                    reached.add(at)
                    drawn[at] = end
        outside = cycle(self._rng.sample(boundary.outside, len(boundary.outside)))
        for at in (at for at, out in enumerate(broken) if out and boundary.outside):
            drawn[at] = next(outside)
        return reached

    def _set_apart(self, drawn: list[Any], values: Sequence[Any], apart: Sequence[Sequence[int]]) -> None:
        """Give two rows of each group the least and the greatest of the remaining values, others in each column.

        If a query wrongly includes or excludes the group, MIN, MAX and DISTINCT then differ.
        """
        left = sorted(values, key=order)
        placed: set[int] = set()
        for rows in (rows for rows in apart if rows):
            if len(left) < 3:
                break
            least, greatest = left[0], left[-1]
            left = left[1:-1]
            for at, value in zip(self._rng.sample(rows, min(len(rows), 2)), (greatest, least), strict=False):
                placed.add(at)
                drawn[at] = value
        for at, value in enumerate(drawn):
            if at not in placed and value not in left:
                drawn[at] = self._rng.choice(left)

    def _group(self, drawn: list[Any], values: Sequence[Any], roles: Sequence[Role]) -> None:
        """Give rows that satisfy all equal values, in groups of the wanted sizes; others get other values."""
        planned = values[: min(len(self._groups), len(values) - 1)]
        rest = values[len(planned) :]
        satisfying = [at for at, role in enumerate(roles) if role is Role.SATISFIES_ALL]
        self._rng.shuffle(satisfying)
        left = iter(satisfying)
        wanted = {at: value for value, size in zip(planned, self._groups, strict=False) for at in islice(left, size)}
        for at, role in enumerate(roles):
            if at in wanted:
                drawn[at] = wanted[at]
            elif role is not Role.MISSES_ONE:
                drawn[at] = self._rng.choice(rest)


def order(value: Any) -> tuple[int, Any]:
    """A sort key: numbers first, then all other values by their text."""
    return (0, value) if isinstance(value, int | float | Decimal) else (1, str(value))


def _next(values: list[Any], taken: set[Any]) -> Any:
    while values:
        value = values.pop()
        if comparable(value) not in taken:
            return value
    return None
