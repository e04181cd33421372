"""Fill the tables of an instance with rows that refer to each other and satisfy the schema."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlfactory_nl2sql.instances.characters import Character, Role
from rlfactory_nl2sql.instances.columns import Columns
from rlfactory_nl2sql.instances.demands import Boundary, Demands
from rlfactory_nl2sql.instances.domains import Domain
from rlfactory_nl2sql.instances.links import Keys, Link
from rlfactory_nl2sql.schema import Table

_MOST = 300  # rows of a table
_SATISFYING, _MISSING_ONE = 0.4, 0.4  # the shares of rows by `Role`; the rest is random
_TRIES = 8  # to draw a row that violates no key
_MISS_ALL = 0.3  # the share of these that miss all conditions, if there are several
_STRAY = 0.12  # the share of rows that refer to nothing, if the link is not declared

Missed = tuple["int | Link", ...]
"""The conditions that a row nearly meets: on one of its columns, or on the row to which a link leads."""
_SURE = 0.7  # the share of satisfying rows that refer to a satisfying row; the others refer to any row
# How often rows are referred to. The first row has values that no other has (see `Columns.draw`) and the most
# references. So the largest group by a key is not the largest by a name, which several keys share.
_OFTEN, _MOST_OFTEN = (2, 3), 6
_PICKS = 30  # tries to pick a row that has given values


class Filling:
    """Builds one instance: `fill` for each table, in the order of `links.in_order`, then `close_circles`."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        domains: Mapping[str, Sequence[Domain]],
        links: Mapping[str, Sequence[Link]],
        demands: Demands,
        character: Character,
        rng: random.Random,
    ) -> None:
        self.rows: dict[str, list[list[Any]]] = {}
        self._roles: dict[str, list[Role]] = {}
        self._depths: dict[str, int] = {}  # the longest chain of links from a table
        self._tables = tables
        self._domains = domains
        self._links = links
        self._demands = demands
        self._character = character
        self._rng = rng
        self._columns = Columns(character, demands, rng)
        self._open: list[tuple[str, Link]] = []

    def fill(self, name: str) -> None:
        """Make the rows of a table. The tables that it refers to are filled before, except for circles."""
        ready = [link for link in self._links[name] if self.rows.get(link.target)]
        self._open += [(name, link) for link in self._links[name] if link.declared and link not in ready]
        self._depths[name] = max((1 + self._depths[link.target] for link in ready), default=0)
        roles = self._draw_roles(self._count(name))
        keys = Keys(self._tables[name])
        columns, missed = self._draw_columns(name, roles, ready, keys)
        parents = [(link, self._parents(link)) for link in ready]
        self.rows[name], self._roles[name] = [], []
        for role, miss, *values in zip(roles, missed, *columns, strict=True):
            row = self._complete(name, values, role, miss, parents, keys)
            if row is not None:
                keys.take(row)
                self.rows[name].append(row)
                self._roles[name].append(role)

    def close_circles(self) -> None:
        """Set references within a table, each to an earlier row, and references to tables that were filled later."""
        for name, link in self._open:
            keys = Keys(self._tables[name])
            free = self._free(name, link, keys)
            closed = []
            for at, row in enumerate(self.rows[name]):
                targets = self.rows.get(link.target, [])
                # If the column takes no NULL, the first row refers to itself.
                among = targets[: at or (0 if free else 1)] if link.target == name else targets
                if self._close(row, link, among, free, keys):
                    keys.take(row)
                    closed.append(row)
            self.rows[name] = closed

    def _close(self, row: list[Any], link: Link, among: Sequence[list[Any]], free: Sequence[int], keys: Keys) -> bool:
        """Set a row's reference to one of these rows, or to nothing if allowed; False if neither is possible."""
        pairs = list(zip(link.places, link.target_places, strict=True))
        held = [(of, to) for of, to in pairs if row[of] is not None]
        fitting = [target for target in among if all(target[to] == row[of] for of, to in held)]
        if free and self._rng.random() < self._character.nulls:
            return True
        self._rng.shuffle(fitting)
        for target in fitting[:_TRIES]:
            for of, to in pairs:
                row[of] = target[to]
            if not keys.clash(row):
                return True
        for of, _ in pairs:
            row[of] = row[of] if (of in dict(held)) else None
        return bool(free)

    def _count(self, name: str) -> int:
        referred = any(link.target == name for links in self._links.values() for link in links)
        depth = min(self._depths[name], 2) if referred or self._depths[name] else 1
        rows = self._character.rows * self._character.growth**depth
        rows = max(rows, 3 * self._demands.least, sum(self._demands.groups) / _SATISFYING)
        return min(round(rows * self._rng.uniform(0.9, 1.2)), _MOST)

    def _draw_roles(self, count: int) -> list[Role]:
        satisfying = max(_SATISFYING, min(sum(self._demands.groups) / count, 0.8))
        missing_one = (1 - satisfying) * _MISSING_ONE / (1 - _SATISFYING)
        roles = self._rng.choices(list(Role), weights=(satisfying, missing_one, 1 - satisfying - missing_one), k=count)
        return [Role.SATISFIES_ALL, *roles[1:]]

    def _draw_columns(
        self, name: str, roles: list[Role], ready: Sequence[Link], keys: Keys
    ) -> tuple[list[list[Any]], list[Missed]]:
        """The values of all columns except those of declared links, and the conditions that each row misses.

        A row does not satisfy all if a unique column has no more value inside for it.
        """
        domains = self._domains[name]
        linked = self._linked(name, ready, keys)
        columns: list[list[Any]] = [[None] * len(roles) for _ in domains]
        boundaries = {
            place: self._demands.boundaries.get((name, place)) for place in range(len(domains)) if place not in linked
        }
        unique = [place for place in boundaries if (place,) in keys.unique]
        for place in unique:
            boundary = boundaries[place]
            columns[place] = self._columns.unique(domains[place], boundary, roles)
            if boundary is not None:
                for at, value in enumerate(columns[place]):
                    if value not in boundary.inside:
                        roles[at] = Role.MISSES_ONE if value in boundary.beside else Role.RANDOM
        able: list[int | Link] = [
            place for place, boundary in boundaries.items() if boundary is not None and place not in unique
        ]
        able += [link for link in ready if Role.MISSES_ONE in self._roles[link.target]]
        if not able and not any(boundaries[place] for place in unique):
            roles[:] = [Role.RANDOM if role is Role.MISSES_ONE else role for role in roles]
        missed = [self._miss(able) if role is Role.MISSES_ONE else () for role in roles]
        apart: list[list[int]] = []
        for place in sorted(boundaries, key=lambda place: boundaries[place] is None):  # columns with a boundary first
            boundary, nullable = boundaries[place], place not in keys.filled
            if boundary is None and not apart:
                apart = self._apart(boundaries, columns, roles, missed)
            if place not in unique:
                out = [place in miss for miss in missed]
                columns[place] = self._columns.draw(domains[place], boundary, out, roles, nullable, apart)
        return columns, missed

    def _miss(self, able: Sequence[int | Link]) -> Missed:
        """One condition, which reveals mistakes with AND, or all conditions, which reveals mistakes with OR."""
        if len(able) > 1 and self._rng.random() < _MISS_ALL:
            return tuple(able)
        return (self._rng.choice(able),) if able else ()

    def _apart(
        self,
        boundaries: Mapping[int, Boundary | None],
        columns: Sequence[Sequence[Any]],
        roles: Sequence[Role],
        missed: Sequence[Missed],
    ) -> list[list[int]]:
        """Groups of rows at the ends of the boundaries and just outside, as `Columns.draw` takes them."""
        first = self._character.apart
        if first is None:
            return []
        ends = [(place, end) for place, boundary in boundaries.items() if boundary for end in boundary.ends]
        turned = ends[first % len(ends) :] + ends[: first % len(ends)] if ends else []
        left = [at for at, role in enumerate(roles) if role is not Role.RANDOM]
        found = []
        for asked in (Role.SATISFIES_ALL, Role.MISSES_ONE):
            for place, end in turned:
                rows = [at for at in left if roles[at] is asked and columns[place][at] == end]
                left = [at for at in left if at not in rows]
                found.append(rows)
        missing_one: dict[Any, list[int]] = {}
        for at in (at for at in left if len(missed[at]) == 1):
            (miss,) = missed[at]
            missing_one.setdefault((miss, repr(columns[miss][at]) if isinstance(miss, int) else ""), []).append(at)
        far = [at for at in left if len(missed[at]) > 1]
        return [*missing_one.values(), far, *found] if first else [*found, *missing_one.values(), far]

    def _linked(self, name: str, ready: Sequence[Link], keys: Keys) -> set[int]:
        """Places whose values come from another row, without parts of keys in links that are closed later."""
        return {
            place
            for link in self._links[name]
            if link.declared
            for place in link.places
            if link in ready or len(link.places) == 1 or place not in keys.places
        }

    def _parents(self, link: Link) -> Parents:
        rows, roles = self.rows[link.target], self._roles[link.target]
        return Parents(rows, roles, self._character, self._demands.groups, self._rng)

    def _complete(
        self,
        name: str,
        row: list[Any],
        role: Role,
        missed: Missed,
        parents: Sequence[tuple[Link, Parents]],
        keys: Keys,
    ) -> list[Any] | None:
        """The row with its references; None if every try violates a key."""
        later = {place for table, link in self._open if table == name for place in link.places}
        for _ in range(_TRIES):
            if not self._refer(name, row, role, missed, parents, keys):
                return None
            clash = [place for place in keys.clash(row) if place not in later]
            if not clash:
                return row
            for place in clash:
                row[place] = self._columns.another(self._domains[name][place])
        return None

    def _refer(
        self,
        name: str,
        row: list[Any],
        role: Role,
        missed: Missed,
        parents: Sequence[tuple[Link, Parents]],
        keys: Keys,
    ) -> bool:
        """Choose the rows to refer to; False if links that share columns leave none."""
        done: set[int] = set()
        for link, candidates in parents:
            if not link.declared and self._rng.random() < _STRAY:
                continue
            fixed = {to: row[of] for of, to in zip(link.places, link.target_places, strict=True) if of in done}
            free = [place for place in self._free(name, link, keys) if place not in done]
            null = None in fixed.values() or (free and self._rng.random() < self._character.nulls)
            target = None if null else candidates.pick(role, link in missed, fixed)
            if target is not None:
                for of, to in zip(link.places, link.target_places, strict=True):
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
    """The rows of a table, for references from one other table."""

    def __init__(
        self,
        rows: Sequence[Sequence[Any]],
        roles: Sequence[Role],
        character: Character,
        groups: Sequence[int],
        rng: random.Random,
    ) -> None:
        self._rows = rows
        self._rng = rng
        if Role.MISSES_ONE not in roles:  # the query has no condition here, so all rows are alike
            roles = [Role.SATISFIES_ALL] * len(rows)
        order = rng.sample(range(len(rows)), len(rows))
        order.sort(key=lambda at: at > 0)  # the first row satisfies all: joins find it, since it is always referred to
        referred = order[: max(round(len(order) * (1 - character.barren)), 1)]
        satisfying = [at for at in referred if roles[at] is Role.SATISFIES_ALL] or referred
        among = [at for at in referred for _ in range(_MOST_OFTEN if at == 0 else rng.choice(_OFTEN))]
        missing_one = [at for at in among if roles[at] is Role.MISSES_ONE] or among
        sized = dict(zip(satisfying, groups, strict=False))
        self._planned = [at for at, size in sized.items() for _ in range(size)]
        rng.shuffle(self._planned)
        others = [at for at in among if at not in sized] or among  # a group of a planned size gets no further rows
        self._any, self._missing_one = _dealt(others, rng), _dealt(missing_one, rng)
        self._satisfying = _dealt([at for at in among if at in satisfying], rng)
        self._unplanned = _dealt([at for at in others if at in satisfying] or others, rng)

    def pick(self, role: Role, missed: bool, fixed: Mapping[int, Any]) -> Sequence[Any] | None:
        """A row with the ``fixed`` values at their places, for a referring row of this role; None if there is none.

        ``missed``: whether the referring row is to miss a condition on this one.
        """
        for _ in range(_PICKS if fixed else 1):
            row = self._rows[self._pick(role, missed)]
            if all(row[place] == value for place, value in fixed.items()):
                return row
        fitting = [row for row in self._rows if all(row[place] == value for place, value in fixed.items())]
        return self._rng.choice(fitting) if fitting else None

    def _pick(self, role: Role, missed: bool) -> int:
        if missed:
            return next(self._missing_one)
        if role is Role.SATISFIES_ALL and self._planned:
            return self._planned.pop()
        if role is Role.MISSES_ONE:
            return next(self._satisfying)
        if role is Role.SATISFIES_ALL and self._rng.random() < _SURE:
            return next(self._unplanned)
        return next(self._any)


def _dealt(rows: Sequence[int], rng: random.Random) -> Iterator[int]:
    """All rows in random order, again and again, so that each comes equally often."""
    while True:
        yield from rng.sample(rows, len(rows))
