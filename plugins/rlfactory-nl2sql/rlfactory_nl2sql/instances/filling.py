"""Fill the tables of an instance with rows that refer to each other and satisfy the schema."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_nl2sql.instances.characters import Character, Role
from rlfactory_nl2sql.instances.columns import Columns
from rlfactory_nl2sql.instances.conditions import Conditions, dealt
from rlfactory_nl2sql.instances.domains import Domain
from rlfactory_nl2sql.instances.links import Keys, Link
from rlfactory_nl2sql.schema import Table

_MOST = 300  # rows of a table
_WEIGHTS = {Role.SATISFIES_ALL: 0.4, Role.MISSES_ONE: 0.4, Role.RANDOM: 0.2}
_TRIES = 8  # to draw a row that violates no key
_SOME = 0.3  # the share of rows that miss all conditions, that refer to any row, or to nothing if no key demands one

Missed = tuple["int | Link", ...]
"""The conditions that a row nearly meets: on one of its columns, or on the row to which a link leads."""


@dataclass(frozen=True, slots=True)
class Made:
    """One row of a table."""

    values: list[Any]
    role: Role
    missed: Missed = ()


class Filling:
    """Builds one instance: `fill` for each table, in the order of `links.in_order`, then `close_circles`."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        domains: Mapping[str, Sequence[Domain]],
        links: Mapping[str, Sequence[Link]],
        conditions: Conditions,
        character: Character,
        rng: random.Random,
    ) -> None:
        self.rows: dict[str, list[Made]] = {}
        self.joined: dict[str, list[Made]] = {}  # those from which all links lead to rows, and from these likewise
        self._depths: dict[str, int] = {}  # the longest chain of links from a table
        self._tables = tables
        self._domains = domains
        self._links = links
        self.conditions = conditions
        self.character = character
        self.rng = rng
        self._columns = Columns(character, conditions, rng)
        self._open: list[tuple[str, Link]] = []

    def fill(self, name: str) -> None:
        """Make the rows of a table. The tables that it refers to are filled before, except for circles."""
        ready = [link for link in self._links[name] if self.rows.get(link.target)]
        circles = [link for link in self._links[name] if link.declared and link not in ready]
        self._open += [(name, link) for link in circles]
        self._depths[name] = max((1 + self._depths[link.target] for link in ready), default=0)
        keys = Keys(self._tables[name])
        parents = [Parents(link, self.rows[link.target], self._free(name, link, keys), self) for link in ready]
        later = {place for link in circles for place in link.places}
        self.rows[name] = []
        for made in self._drawn(name, ready, circles, keys):
            if self._complete(self._domains[name], made, parents, keys, later):
                keys.take(made.values)
                self.rows[name].append(made)
        self.joined[name] = self.rows[name]
        for link in ready:
            there = {tuple(made.values[place] for place in link.target_places) for made in self.joined[link.target]}
            self.joined[name] = [
                made for made in self.joined[name] if tuple(made.values[place] for place in link.places) in there
            ]

    def close_circles(self) -> None:
        """Set references within a table, each to an earlier row, and references to tables that were filled later."""
        for name, link in self._open:
            keys = Keys(self._tables[name])
            free = self._free(name, link, keys)
            closed = []
            for at, made in enumerate(self.rows[name]):
                targets = self.rows.get(link.target, [])
                # If the column takes no NULL, the first row refers to itself.
                among = targets[: at or (0 if free else 1)] if link.target == name else targets
                if self._close(made.values, link, [target.values for target in among], free, keys):
                    keys.take(made.values)
                    closed.append(made)
            self.rows[name] = closed

    def _close(self, row: list[Any], link: Link, among: Sequence[list[Any]], free: Sequence[int], keys: Keys) -> bool:
        """Set a row's reference to one of these rows, or to nothing if allowed; False if neither is possible."""
        if free and self.rng.random() < self.character.nulls:
            return True
        before = [row[of] for of in link.places]
        fitting = [each for each in among if all(row[of] in (None, each[to]) for of, to in link.pairs)]
        for target in self.rng.sample(fitting, min(len(fitting), _TRIES)):
            for of, to in link.pairs:
                row[of] = target[to]
            if not keys.clash(row):
                return True
        for of, value in zip(link.places, before, strict=True):
            row[of] = value
        return bool(free)

    def _count(self, name: str) -> int:
        referred = any(link.target == name for links in self._links.values() for link in links)
        depth = min(self._depths[name], 2) if referred or self._depths[name] else 1
        rows = self.character.rows * self.character.growth**depth
        grouped = sum(self.conditions.groups) / _WEIGHTS[Role.SATISFIES_ALL]
        return min(round(max(rows, 3 * self.conditions.least, grouped) * self.rng.uniform(0.9, 1.2)), _MOST)

    def _drawn(self, name: str, ready: Sequence[Link], circles: Sequence[Link], keys: Keys) -> Iterator[Made]:
        """The rows with all values except those of declared links.

        A row does not satisfy all if a unique column has no more value inside for it.
        """
        count = self._count(name)
        roles = [Role.SATISFIES_ALL, *self.rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=count - 1)]
        domains = self._domains[name]
        linked = {place for link in ready if link.declared for place in link.places}
        for link in circles:  # a part of a key needs a value until the circle is closed
            linked.update(place for place in link.places if len(link.places) == 1 or place not in keys.places)
        columns: list[list[Any]] = [[None] * count for _ in domains]
        own = [place for place in range(len(domains)) if place not in linked]
        boundaries = {place: self.conditions.boundaries.get((name, place)) for place in own}
        unique = [place for place in own if (place,) in keys.unique]
        for place in unique:
            boundary = boundaries[place]
            columns[place] = self._columns.unique(domains[place], boundary, roles)
            for at, value in enumerate(columns[place] if boundary else ()):
                if boundary and not any(value in group for group in boundary.inside):
                    roles[at] = Role.MISSES_ONE if any(value in group for group in boundary.beside) else Role.RANDOM
        able: list[int | Link] = [place for place in own if boundaries[place] and place not in unique]
        able += [link for link in ready if any(made.role is Role.MISSES_ONE for made in self.rows[link.target])]
        if not able and not any(boundaries[place] for place in unique):  # there is nothing to miss
            roles = [Role.RANDOM if role is Role.MISSES_ONE else role for role in roles]
        missed = [self._miss(able) if role is Role.MISSES_ONE else () for role in roles]
        for place in own:
            if place not in unique:
                out = [place in each for each in missed]
                nullable = place not in keys.filled
                columns[place] = self._columns.draw(domains[place], boundaries[place], out, roles, nullable)
        for role, each, *values in zip(roles, missed, *columns, strict=True):
            yield Made(values, role, each)

    def _miss(self, able: Sequence[int | Link]) -> Missed:
        """One condition, which reveals mistakes with AND, or all conditions, which reveals mistakes with OR."""
        if len(able) > 1 and self.rng.random() < _SOME:
            return tuple(able)
        return (self.rng.choice(able),) if able else ()

    def _complete(
        self, domains: Sequence[Domain], made: Made, parents: Sequence[Parents], keys: Keys, later: set[int]
    ) -> bool:
        """Set the row's references; False if every try violates a key."""
        for _ in range(_TRIES):
            if not self._refer(made, parents):
                return False
            clash = [place for place in keys.clash(made.values) if place not in later]
            if not clash:
                return True
            for place in clash:
                made.values[place] = self._columns.another(domains[place])
        return False

    def _refer(self, made: Made, parents: Sequence[Parents]) -> bool:
        """Choose the rows to refer to; False if links that share columns leave none."""
        done: set[int] = set()
        row = made.values
        for parent in parents:
            link = parent.link
            if not link.declared and self.rng.random() < _SOME:
                continue
            fixed = {to: row[of] for of, to in link.pairs if of in done} if done else {}
            free = [place for place in parent.free if place not in done]
            null = free and not parent.is_planned(made.role) and self.rng.random() < self.character.nulls
            null = null or None in fixed.values()
            target = None if null else parent.pick(made.role, link in made.missed, fixed)
            if target is not None:
                for of, to in link.pairs:
                    row[of] = target[to]
            elif free:
                for place in free:
                    row[place] = None
            elif not null:
                return False
            done.update(link.places)
        return True

    def _free(self, name: str, link: Link, keys: Keys) -> list[int]:
        """The places of a link that may be NULL. If one is NULL, the row refers to nothing."""
        return [place for place in link.places if place not in keys.filled and self._domains[name][place].nulls]


class Parents:
    """The rows of a table, for one link to it.

    Args:
        link: the link.
        rows: all rows of the table.
        free: the places of the link that may be NULL.
        filling: the instance, whose character and conditions say which rows are referred to, and how often.
    """

    def __init__(self, link: Link, rows: Sequence[Made], free: Sequence[int], filling: Filling) -> None:
        self.link = link
        self.free = free
        self._rng = rng = filling.rng
        character, conditions = filling.character, filling.conditions
        # The first row satisfies all, and has values that no other has (see `Columns.draw`). It has the most
        # references, and the next two, which share their values, have more together: the largest group by a key is
        # then not the largest by a name that several keys share.
        order = [*range(min(3, len(rows))), *rng.sample(range(3, len(rows)), max(len(rows) - 3, 0))]
        referred = order[: max(round(len(order) * (1 - character.barren)), 1)]
        if all(made.role is not Role.MISSES_ONE for made in rows):  # the query has no condition here: rows are alike
            satisfying = missing_one = referred
        else:
            satisfying = [at for at in referred if rows[at].role is Role.SATISFIES_ALL] or referred
            missing_one = [at for at in referred if rows[at].role is Role.MISSES_ONE] or referred
        sized = dict(zip(satisfying, conditions.groups, strict=False))
        self._planned = [at for at, size in sized.items() for _ in range(size)]
        rng.shuffle(self._planned)
        rest = [at for at in referred if at not in sized] or referred  # a group of a planned size gets no further rows
        often = {at: (5, 3, 3)[at] if at < 3 else rng.choice((2, 3)) for at in referred}

        def deck(some: Sequence[int]) -> Iterator[Any]:
            return dealt(([rows[at].values for at in some for _ in range(often[at])],), rng)

        self._rows = [made.values for made in rows]
        self._any, self._missing_one, self._satisfying = deck(rest), deck(missing_one), deck(satisfying)
        self._unplanned = deck([at for at in rest if at in satisfying] or rest)

    def pick(self, role: Role, missed: bool, fixed: Mapping[int, Any]) -> Sequence[Any] | None:
        """A row with the ``fixed`` values at their places, for a referring row of this role; None if there is none.

        ``missed``: whether the referring row is to miss a condition on this one.
        """
        row = self._pick(role, missed)
        if all(row[place] == value for place, value in fixed.items()):
            return row
        fitting = [row for row in self._rows if all(row[place] == value for place, value in fixed.items())]
        return self._rng.choice(fitting) if fitting else None

    def is_planned(self, role: Role) -> bool:
        """Whether the next row of this role belongs to a group of a wanted size."""
        return role is Role.SATISFIES_ALL and bool(self._planned)

    def _pick(self, role: Role, missed: bool) -> Sequence[Any]:
        if self.is_planned(role):
            return self._rows[self._planned.pop()]
        deck = self._any
        if role is Role.MISSES_ONE:
            deck = self._missing_one if missed else self._satisfying
        elif role is Role.SATISFIES_ALL and self._rng.random() >= _SOME:
            deck = self._unplanned
        row: Sequence[Any] = next(deck)
        return row
