"""Draw the values of columns that are not references."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from typing import Any

from rlfactory_nl2sql.instances.characters import Character, Role
from rlfactory_nl2sql.instances.conditions import Boundary, Conditions, dealt
from rlfactory_nl2sql.instances.domains import Domain, comparable, distinct


class Columns:
    """Draws whole columns of one instance."""

    def __init__(self, character: Character, conditions: Conditions, rng: random.Random) -> None:
        self._character = character
        self._conditions = conditions
        self._rng = rng
        self._salt = rng.getrandbits(32)

    def draw(
        self, domain: Domain, boundary: Boundary | None, missed: Sequence[bool], roles: Sequence[Role], nullable: bool
    ) -> list[Any]:
        """A value for each row, beside the boundary where it is ``missed``."""
        rng, count = self._rng, len(roles)
        if not domain.known:
            return [None] * count
        values = self._pool(domain)
        drawn = rng.choices(values, weights=range(len(values), 0, -1), k=count)  # the first values are more frequent
        firm = [False] * count
        if boundary is not None:
            beside = dealt(boundary.beside, rng)
            inside = dealt(boundary.inside, rng) if boundary.inside else beside
            for at, role in enumerate(roles):
                firm[at] = role is not Role.RANDOM and not missed[at]
                near = next(beside if missed[at] else inside)
                drawn[at] = rng.choice((drawn[at], next(inside), next(beside))) if role is Role.RANDOM else near
        elif self._conditions.groups:
            self._group(drawn, values, roles)
        elif len(values) > 2:  # the first row has a value that no other row has, and the next two have the same
            rare = values.pop()
            drawn = [rare, *(rng.choice(values) if value is rare else value for value in drawn[1:])]
            drawn[2:3] = drawn[1:2] * len(drawn[2:3])
        if domain.nulls and nullable and not (boundary and boundary.of_nulls):
            share = self._character.nulls
            drawn = [None if rng.random() < share and not firm[at] else value for at, value in enumerate(drawn)]
        return drawn

    def unique(self, domain: Domain, boundary: Boundary | None, roles: Sequence[Role]) -> list[Any]:
        """A different value for each row; None if there are no more."""
        known = self._rng.sample(domain.known, len(domain.known))[: len(roles) // 2 or 1]
        near = {Role.SATISFIES_ALL: boundary.inside, Role.MISSES_ONE: boundary.beside} if boundary else {}
        sources = {}
        for role in Role:
            side = [value for group in near.get(role, ()) for value in group]
            sources[role] = iter([*self._rng.sample(side, len(side)), *known])
        taken: set[Any] = set()
        drawn: list[Any] = [None] * len(roles)
        for at in sorted(range(len(roles)), key=lambda at: roles[at] is Role.RANDOM):
            value = next((value for value in sources[roles[at]] if comparable(value) not in taken), None)
            drawn[at] = domain.fresh(taken, self._rng) if value is None else value
            taken.add(comparable(drawn[at]))
        return drawn

    def another(self, domain: Domain) -> Any:
        """Another value, for a row that violates a unique constraint."""
        if not domain.known:
            return None
        return self._rng.choice((domain.invent(self._rng), domain.fresh((), self._rng)))

    def _pool(self, domain: Domain) -> list[Any]:
        """Values to draw from. Columns with the same given values get the same ones, so that joins find rows."""
        least = self._conditions.least
        size = max(self._character.values, least + 2 if least > 1 else 0)
        known = sorted(domain.known, key=lambda value: zlib.crc32(f"{value!r} {self._salt}".encode("utf-8", "replace")))
        kept = known[: max(size // 2, 1)]
        values = list(distinct([*kept, *(domain.invent(self._rng, known) for _ in range(size - len(kept)))]))
        return values if len(values) > 2 else list(distinct([*values, *known]))[:size]

    def _group(self, drawn: list[Any], values: Sequence[Any], roles: Sequence[Role]) -> None:
        """Give rows that satisfy all equal values, in groups of the wanted sizes; the random ones get other values."""
        planned = values[: min(len(self._conditions.groups), len(values) - 1)]
        rest = values[len(planned) :]
        wanted = [value for value, size in zip(planned, self._conditions.groups, strict=False) for _ in range(size)]
        satisfying = [at for at, role in enumerate(roles) if role is Role.SATISFIES_ALL]
        chosen = dict(zip(self._rng.sample(satisfying, len(satisfying)), wanted, strict=False))
        for at, role in enumerate(roles):
            if at in chosen or role is not Role.MISSES_ONE:
                drawn[at] = chosen[at] if at in chosen else self._rng.choice(rest)
