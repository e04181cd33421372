"""Choose the row of another table that a row refers to."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlfactory_nl2sql.instances.characters import Character, Role

_SURE = 0.7  # the share of satisfying rows that refer to a satisfying row; the others refer to any row
# How often rows are referred to. The first row has values that no other has (see `Columns.draw`) and the most
# references. So the largest group by a key is not the largest by a name, which several keys share.
_OFTEN, _MOST_OFTEN = (2, 3), 6
_TRIES = 30


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
        """A row that has the ``fixed`` values at their places; None if there is none.

        Args:
            role: of the referring row.
            missed: whether the referring row is to miss a condition on the row that it refers to.
        """
        for _ in range(_TRIES if fixed else 1):
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
