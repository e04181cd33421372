"""Draw the rows of an instance, of which some satisfy all conditions of the gold query, and refer to each other.

Instances of different kinds (`Character`) reveal different mistakes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, count, repeat
from typing import Any

from rlfactory_nl2sql.instances.conditions import Boundary, Conditions, dealt
from rlfactory_nl2sql.instances.domains import Domain, comparable
from rlfactory_nl2sql.instances.links import Link, Part


class Role(Enum):
    """The purpose of a row."""

    SATISFIES_ALL = "satisfies all"  # meets all conditions of the gold query on its table
    MISSES_ONE = "misses one"  # meets all conditions but one, and nearly meets that one
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Character:
    """A kind of database."""

    rows: int  # of a table that refers to no other
    growth: float  # factor of the number of rows, for each reference between a table and such a table
    values: int  # to draw from, for a column that is no key; half of them are new
    nulls: float  # the share of NULLs in columns that have NULLs
    barren: float  # the share of rows to which no row refers
    even: bool = False  # whether values and references are equally frequent
    unmet: int | None = None  # which of the gold query's conditions no row meets; None: each is met


# Few values, many equal ones. They reveal double counting, and a missing DISTINCT or GROUP BY.
REPEATED = Character(rows=14, growth=1.8, values=4, nulls=0.25, barren=0.3)
# Many values, few equal ones. They reveal a wrong column, order or LIMIT.
DIVERSE = Character(rows=26, growth=1.6, values=30, nulls=0.12, barren=0.2)
# Few references, some tables nearly empty. They reveal mistakes in outer joins, empty groups and empty results.
SPARSE = Character(rows=12, growth=0.3, values=12, nulls=0.3, barren=0.75, unmet=0)
# Rows and groups that hardly differ. They reveal mistakes with ties, averages and equal sums.
TIED = Character(rows=8, growth=1, values=1, nulls=0.5, barren=0, unmet=1)
# Groups of the same size, of which several are the largest.
EVEN = Character(rows=8, growth=1, values=2, nulls=0.5, barren=0, even=True)

# Most of the mistakes that are hard to see are seen in the first two kinds only.
CHARACTERS: Sequence[Character] = (REPEATED, DIVERSE, SPARSE, TIED, REPEATED, DIVERSE, EVEN, DIVERSE)


_MOST = 300  # rows of a table
_EVEN = 6  # likewise, where groups are equal: so many rows have two values, or two and NULL, equally often
_WEIGHTS = {Role.SATISFIES_ALL: 0.4, Role.MISSES_ONE: 0.4, Role.RANDOM: 0.2}
_SOME = 0.3  # the share of rows that miss all conditions, or that refer to nothing where only names say that they refer


@dataclass(frozen=True, slots=True)
class Made:
    """One row of a table."""

    values: list[Any]
    role: Role


@dataclass(slots=True)
class Source:
    """What a table's rows have in one column or for one link: values, or rows of the table to which it leads."""

    satisfying: Iterator[Any]
    missing: Iterator[Any]
    anything: Iterator[Any]
    conditional: bool  # whether the query has a condition on it
    nulls: float

    def draw(self, role: Role, *, missed: bool, rng: random.Random) -> Any:
        firm = self.conditional and role is not Role.RANDOM and not missed
        if not firm and rng.random() < self.nulls:
            return None
        return next(self.anything if role is Role.RANDOM else self.missing if missed else self.satisfying)


class Filling:
    """Builds one instance: `fill` for each table, in the order of `links.in_order`, then `close_circles`."""

    def __init__(
        self, parts: Mapping[str, Part], conditions: Conditions, character: Character, rng: random.Random
    ) -> None:
        self.parts, self.conditions, self.rng, self._character = parts, conditions, rng, character
        self.rows: dict[str, list[Made]] = {}
        self._depths: dict[str, int] = {}  # the longest chain of links from a table
        self._salt = rng.getrandbits(32)
        self._open: list[tuple[str, Link]] = []

    def fill(self, name: str) -> None:
        """Make the rows of a table. The tables that it refers to are filled before, except for circles."""
        part, rng = self.parts[name], self.rng
        keys, domains = part.keys, part.domains
        ready = [link for link in part.links if self.rows.get(link.target)]
        circles = [link for link in part.links if link.declared and link not in ready]
        self._open += [(name, link) for link in circles]
        needed = keys.filled.difference(place for link in circles for place in link.places)
        self._depths[name] = max((1 + self._depths[link.target] for link in ready), default=0)
        number = self._count(name)
        roles = [Role.SATISFIES_ALL, *rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=number - 1)]
        linked = {place for link in ready if link.declared for place in link.places}
        bound = self.conditions.bound(name)
        sources: dict[int | Link, Source] = {}
        for place in (place for place in range(len(domains)) if place not in linked):
            if (place,) in keys.unique:
                different = iter(self._different(domains[place], bound.get(place), roles))
                sources[place] = Source(different, different, different, conditional=False, nulls=0)
            else:
                nulls = 0 if place in keys.filled or not domains[place].nulls else self._character.nulls
                sources[place] = self._column(domains[place], bound.get(place), nulls)
        for link in ready:
            nulls = self._character.nulls if self._free(name, link) else 0
            sources[link] = self._parents(link, nulls)
        able = [key for key, source in sources.items() if source.conditional]
        if not able and not any((place,) in keys.unique for place in bound):  # there is nothing to miss
            roles = [Role.RANDOM if role is Role.MISSES_ONE else role for role in roles]
        self.rows[name] = []
        for role in roles:
            missed = self._miss(able) if role is Role.MISSES_ONE else ()
            drawn = {key: one.draw(role, missed=key in missed, rng=rng) for key, one in sources.items()}
            row = [drawn.get(place) for place in range(len(domains))]
            for link in ready:
                self._refer(row, name, link, drawn[link])
            if all(row[place] is not None for place in needed):
                self.rows[name].append(Made(row, role))

    def close_circles(self) -> None:
        """Set references within a table, each to an earlier row, and references to tables that were filled later."""
        for name, link in self._open:
            free = self._free(name, link)
            targets = [made.values for made in self.rows.get(link.target, ())]
            others = dealt((targets,), self.rng)  # each once before one comes again: the reference may be unique
            for at, made in enumerate(self.rows[name]):
                earlier = targets[: at or (0 if free else 1)]  # if the column takes no NULL, the first refers to itself
                among = earlier if link.target == name else targets
                none = not among or (free and self.rng.random() < self._character.nulls)
                chosen = None if none else self.rng.choice(among) if among is earlier else next(others)
                self._refer(made.values, name, link, chosen)

    def _count(self, name: str) -> int:
        referred = any(link.target == name for part in self.parts.values() for link in part.links)
        depth = min(self._depths[name], 2) if referred or self._depths[name] else 1
        rows = self._character.rows * self._character.growth**depth
        number = min(round(max(rows, 3 * self.conditions.least) * self.rng.uniform(0.9, 1.2)), _MOST)
        return -(-number // _EVEN) * _EVEN if self._character.even else number

    def _miss(self, able: Sequence[int | Link]) -> Sequence[int | Link]:
        """One condition, which reveals mistakes with AND, or all conditions, which reveals mistakes with OR."""
        if len(able) > 1 and self.rng.random() < _SOME:
            return tuple(able)
        return (self.rng.choice(able),) if able else ()

    def _refer(self, row: list[Any], name: str, link: Link, target: Sequence[Any] | None) -> None:
        """Make a row refer to another; None: to nothing, if it may."""
        if target is not None and (link.declared or self.rng.random() >= _SOME):
            for place, value in link.reference(target).items():
                row[place] = value
        elif target is None:
            for place in self._free(name, link):
                row[place] = None

    def _free(self, name: str, link: Link) -> list[int]:
        """The places of a link that may be NULL. If one is NULL, the row refers to nothing."""
        part = self.parts[name]
        return [place for place in link.places if place not in part.keys.filled and part.domains[place].nulls]

    def _column(self, domain: Domain, boundary: Boundary | None, nulls: float) -> Source:
        """The values of a column, beside the boundary where it is missed."""
        rng, least = self.rng, self.conditions.least
        if not domain.known:
            return Source(repeat(None), repeat(None), repeat(None), conditional=False, nulls=0)
        values = domain.pool(max(self._character.values, least + 2 if least > 1 else 0), self._salt, rng)
        if self._character.even and nulls:
            values, nulls = [*values, None], 0
        free = self._drawn(values)
        if boundary is None:
            return Source(free, free, free, conditional=False, nulls=nulls)
        beside = dealt(boundary.beside, rng)
        inside = dealt(boundary.inside, rng) if boundary.inside else beside
        mixed = (next(rng.choice((free, inside, beside))) for _ in count())
        return Source(inside, beside, mixed, conditional=True, nulls=nulls)

    def _drawn(self, values: Sequence[Any]) -> Iterator[Any]:
        """Values without end, of which the first are more frequent, unless all are equally frequent."""
        weights = range(len(values), 0, -1)
        some = (self.rng.choices(values, weights, k=32) for _ in count())
        return dealt((values,), self.rng) if self._character.even else chain.from_iterable(some)

    def _parents(self, link: Link, nulls: float) -> Source:
        """The rows of the table to which a link leads, and the share of rows that refer to none of them."""
        rng, rows = self.rng, self.rows[link.target]
        order = [0, *rng.sample(range(1, len(rows)), len(rows) - 1)]
        referred = order[: max(round(len(order) * (1 - self._character.barren)), 1)]
        often = {at: 1 if self._character.even else rng.choice((2, 3)) for at in referred}
        often[0] = 1 if self._character.even else 5 + self.conditions.least
        conditional = any(made.role is Role.MISSES_ONE for made in rows)  # otherwise the rows are alike
        satisfying = [at for at in referred if rows[at].role is Role.SATISFIES_ALL or not conditional] or referred
        missing = [at for at in referred if rows[at].role is Role.MISSES_ONE or not conditional] or referred

        def deck(some: Sequence[int]) -> Iterator[Any]:
            return dealt(([rows[at].values for at in some for _ in range(often[at])],), rng)

        return Source(deck(satisfying), deck(missing), deck(referred), conditional, nulls)

    def _different(self, domain: Domain, boundary: Boundary | None, roles: list[Role]) -> list[Any]:
        """A different value for each row, None if there are no more; a row for which none is inside misses one."""
        rng = self.rng
        near = {Role.SATISFIES_ALL: boundary.inside, Role.MISSES_ONE: boundary.beside} if boundary else {}
        sides = {role: [value for group in groups for value in group] for role, groups in near.items()}
        known = iter(rng.sample(domain.known, len(domain.known))[: len(roles) // 2 or 1])
        sources = {role: iter(rng.sample(side, len(side))) for role, side in sides.items()}
        taken: set[Any] = set()
        drawn: list[Any] = [None] * len(roles)
        for at in sorted(range(len(roles)), key=lambda at: roles[at] is Role.RANDOM):
            options = (value for source in (sources.get(roles[at], ()), known) for value in source)
            value = next((value for value in options if comparable(value) not in taken), None)
            drawn[at] = domain.invent(rng, taken=taken) if value is None else value
            taken.add(comparable(drawn[at]))
            if boundary and drawn[at] not in sides[Role.SATISFIES_ALL]:
                roles[at] = Role.MISSES_ONE if drawn[at] in sides[Role.MISSES_ONE] else Role.RANDOM
        return drawn
