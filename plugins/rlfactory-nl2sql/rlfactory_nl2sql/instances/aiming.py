"""Add groups to an instance whose sizes, sums or averages are just below and just above a query's thresholds.

Rows are copied until the query itself, without its threshold, measures what is wanted. So the groups are exact,
whatever its conditions are. A group just below the threshold also has rows that fail one condition each: a prediction
without that condition finds it above. A group just above it has rows with NULLs and at the edges of conditions: a
prediction that leaves these out finds it below.
"""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice, product
from typing import Any

from rlfactory_nl2sql.checks.thresholds import Threshold
from rlfactory_nl2sql.connection import Row
from rlfactory_nl2sql.instances.conditions import Conditions, dealt
from rlfactory_nl2sql.instances.domains import Kind
from rlfactory_nl2sql.instances.links import Part
from rlfactory_nl2sql.instances.workshop import Place, Workshop

_MOST = 1_300  # rows that are added to an instance
_SMALL = 90  # rows that a group needs: a larger one is only made in some instances
_TRIED = 8  # rows that are tried as models of a group
_VARIANTS = 20  # rows of a group that fail a condition, or meet it at its edge
_REPEATED = 4  # groups that are made again with a change in what identifies them
_CHANGES = 60  # that bring a group back over its threshold
_NEAR = 1e-9
_AIMED = {0, 1, 2, 5, 6}  # by number in each eight: instances with groups on both sides; others are left as they are
_ABOVE = {0, 1, 6}  # likewise, where there can be one group only; the next eight have theirs on the other side
_LARGE = frozenset({1, 2, 5, 9, 14})
# Errors of a threshold that cannot be measured: it compares no numbers, takes long, or SQLite cannot hold its values.
_UNMEASURED = (sqlite3.Error, ArithmeticError, ValueError, TypeError)

Maker = Callable[[], "list[Any] | None"]


def aim(
    parts: Mapping[str, Part],
    rows: Mapping[str, Sequence[Row]],
    thresholds: Sequence[Threshold],
    conditions: Conditions,
    number: int,
    rng: random.Random,
) -> Mapping[str, Sequence[Row]]:
    """The rows with further ones; the instance's ``number`` decides which.

    Args:
        rows: those before all others are tried first as models of new ones.
    """
    if not thresholds or number % 8 not in _AIMED:
        return rows
    try:
        made = Workshop(parts, rows, rng)
    except _UNMEASURED:
        return rows
    with closing(made) as shop:
        aiming = Aiming(shop, thresholds, conditions, number)
        for threshold in thresholds:
            aiming.groups(threshold)
        return {name: [tuple(row) for row in held.values()] for name, held in shop.rows.items()}


@dataclass(slots=True)
class Group:
    """A group while it is made."""

    threshold: Threshold
    table: str  # whose rows are copied
    model: list[Any]  # one of its rows
    key: tuple[Any, ...]
    kept: Mapping[int, Any]  # the values that decide to which group a row belongs
    rows: list[Place] = field(default_factory=list)
    ups: list[Maker] = field(default_factory=list)  # rows that raise the left side over the right one
    downs: list[Maker] = field(default_factory=list)


class Aiming:
    """Adds the groups for the thresholds of one query to an instance."""

    def __init__(self, shop: Workshop, thresholds: Sequence[Threshold], conditions: Conditions, number: int) -> None:
        self._shop, self._rng, self._thresholds, self._conditions = shop, shop.rng, thresholds, conditions
        self._number, self._left = number, _MOST
        self._models = {name: list(rows.values()) for name, rows in shop.rows.items()}

    def groups(self, threshold: Threshold) -> None:
        """Make the groups for one threshold, as far as they can be measured and there is room for them."""
        sides: tuple[bool, ...] = (True, False)
        if not threshold.keys or not threshold.fixed:
            sides = ((self._number % 8 in _ABOVE) == (self._number <= 8),)
        try:
            for above in sides:
                self._group(threshold, above=above)
        except _UNMEASURED:
            return

    def _group(self, threshold: Threshold, *, above: bool) -> None:
        group = self._begun(threshold)
        if group is None:
            return
        for row in islice(self._variants(group.table, group.model, group.kept), _VARIANTS):
            self._add(group, row)
        for other in self._thresholds:
            if other is not threshold and other.keys == threshold.keys:
                self._raise(group, other)
        reached = self._cross(group, above=above)
        self._set(group, above=above)
        if reached and above and threshold.fixed:  # otherwise further rows would move the other side
            self._repeat(group)

    def _variants(self, table: str, model: Sequence[Any], kept: Mapping[int, Any]) -> Iterator[list[Any]]:
        """Copies of a row with another value or reference: NULL, at the edge of a condition, or another row's."""
        part, rng = self._shop.parts[table], self._rng
        bound = self._conditions.bound(table)
        edges = {at: dealt([*bound[at].inside[:1], *bound[at].beside[:1]], rng) for at in bound}
        optional = {at for at in range(len(model)) if part.domains[at].nulls and at not in part.keys.filled}
        places = [(at,) for at in part.free] + [link.places for link in part.links]
        free = [some for some in places if kept.keys().isdisjoint(some)]
        decks = [
            [(some, "null") for some in free if optional.issuperset(some)],
            [(some, "edge") for some in free if edges.keys() >= {*some}],
            [(some, "other") for some in free],
        ]
        for some, kind in islice(dealt([deck for deck in decks if deck], rng), 2 * _VARIANTS if free else 0):
            other = rng.choice(self._models[table])
            values = {at: next(edges[at]) if kind == "edge" else None if kind == "null" else other[at] for at in some}
            row = self._shop.copied(table, model, {**kept, **values})
            if row is not None:
                yield row

    def _begun(self, threshold: Threshold) -> Group | None:
        """A group of few rows to which others can be added, with a key of its own if that can be."""
        shop, before = self._shop, self._shop.measure(threshold.measure)
        origins = [one for one in threshold.keys if one is not None]
        tables = [name for name in shop.parts if name in threshold.tables]
        for table, origin in product(tables[::-1], (*origins, None)):
            held = shop.holding(table, origins)
            for model in self._models[table][:_TRIED]:
                keep = {at: model[at] for at in held}
                row = shop.renewed(table, model, origin) if origin else shop.copied(table, model, keep)
                if row is None:
                    continue
                place = shop.add(table, row)
                after = shop.measure(threshold.measure)
                changed = [key for key in after if before.get(key) != after[key]]
                fresh = [key for key in changed if key not in before]
                if not threshold.fixed and threshold.keys:  # the right side of all groups has changed
                    changed = fresh or [key for key in changed if before[key][0] != after[key][0]]
                if len(changed) == 1 and (fresh or origin is None):
                    group = Group(threshold, table, row, changed[0], {at: row[at] for at in held}, [place])
                    self._find_movers(group)
                    if group.ups:
                        return group
                    for added in group.rows[1:]:
                        shop.remove(added)
                shop.remove(place)
        return None

    def _find_movers(self, group: Group) -> None:
        """Find rows that change the group's measure when they are added."""
        models = self._models[group.table]
        copied, renewed = partial(self._shop.copied, group.table), partial(self._shop.renewed, group.table)
        others = self._rng.sample(models, min(len(models), _TRIED))
        for other in others[:2]:  # an average has to be one of several values
            self._add(group, copied(other, group.kept))
        if not group.threshold.fixed:
            self._sort(group, [partial(copied, other, {}) for other in others[:4]])
            group.ups.clear()
        self._sort(group, [partial(copied, other, group.kept) for other in (group.model, *others)])
        if not group.ups:
            arguments = product((group.model, *others[:_TRIED]), group.threshold.arguments)
            self._sort(group, [partial(renewed, row, origin) for row, origin in arguments])

    def _sort(self, group: Group, makers: Sequence[Maker]) -> None:
        before = self._measured(group)
        for maker in makers:
            row = maker()
            if row is not None and before is not None:
                place = self._shop.add(group.table, row)
                step = (self._measured(group) or before) - before
                self._shop.remove(place)
                if step:
                    (group.ups if step > 0 else group.downs).append(maker)

    def _measured(self, group: Group, threshold: Threshold | None = None) -> float | None:
        """By how much the left side of the threshold exceeds the right one."""
        left, right = self._shop.measure((threshold or group.threshold).measure).get(group.key, (None, None))
        return None if left is None or right is None else left - right

    def _add(self, group: Group, row: list[Any] | None) -> Place | None:
        if row is None or self._left <= 0:
            return None
        self._left -= 1
        group.rows.append(self._shop.add(group.table, row))
        return group.rows[-1]

    def _drop(self, group: Group, place: Place) -> list[Any]:
        self._left += 1
        group.rows = [one for one in group.rows if one != place]
        return self._shop.remove(place)

    def _raise(self, group: Group, threshold: Threshold) -> bool:
        """Add rows until the group is over a threshold; False if there is no room, or it never is."""
        ways = [group.ups]
        if threshold is not group.threshold:
            renewed = partial(self._shop.renewed, group.table, group.model)
            ways = [[partial(renewed, origin)] for origin in threshold.arguments]
            ways.insert(0, [partial(self._shop.copied, group.table, group.model, group.kept)])
        for makers in ways:
            number, before = 1, self._measured(group, threshold)
            while not _over(before, threshold):
                if number > self._left or (number > _SMALL and self._number not in _LARGE):
                    return False
                for maker in islice(cycle(makers), number):
                    self._add(group, maker())
                now = self._measured(group, threshold)
                if now is None or before is None or now <= before:
                    break
                number, before = max(math.floor(-now * number / (now - before)), 1), now
            else:
                return True
        return False

    def _cross(self, group: Group, *, above: bool) -> bool:
        """Bring the group to the last measure below its threshold, or to the first one above it."""
        shop, threshold, before = self._shop, group.threshold, self._measured(group)
        downs = group.downs if _over(before, threshold) or not threshold.fixed else []
        if not self._raise(group, threshold):
            return False
        for at in range(_CHANGES if downs else 0):
            place = self._add(group, downs[at % len(downs)]())
            if not _over(self._measured(group), threshold):
                if above and place is not None:
                    self._drop(group, place)
                return True
        places, before = group.rows[:0:-1], self._measured(group)
        if not threshold.keys or not threshold.fixed:
            others = {(group.table, at) for at in shop.rows[group.table]} - {*group.rows}
            places += self._rng.sample(sorted(others), len(others))
        for place in (*places, group.rows[0]):
            row, now = self._drop(group, place), self._measured(group)
            over = _over(now, threshold)
            if now == before or (above and not over):
                self._add(group, row)
            if not over:
                return True
            before = now
        return False

    def _set(self, group: Group, *, above: bool) -> None:
        """Change a number that is aggregated so that the threshold is met exactly, or missed by as little as can be."""
        part = self._shop.parts[group.table]
        names = [one.name for one in part.table.columns]
        for origin in group.threshold.arguments:
            at = names.index(origin.column) if origin.table == group.table else -1
            if at not in part.free or part.domains[at].kind is not Kind.NUMBER or part.domains[at].closed:
                continue
            places = self._rng.sample(group.rows, min(len(group.rows), _TRIED))
            if any(self._set_one(group, place, at, above=above) for place in places):
                return

    def _set_one(self, group: Group, place: Place, at: int, *, above: bool) -> bool:
        shop, part, row = self._shop, self._shop.parts[group.table], self._shop.rows[group.table][place[1]]
        old, before, step = row[at], self._measured(group), part.domains[at].step
        if before is None or not isinstance(old, type(step)):
            return False
        shop.change(place, at, old + step)
        after = self._measured(group)
        slope = 0.0 if after is None else (after - before) / float(step)
        equal = type(step)(round(float(old) - before / slope, part.domains[at].decimals)) if slope else old
        for value in (equal, equal + step, equal - step) if slope else ():
            shop.change(place, at, value)
            if part.domains[at].accepts(value) and part.checks.hold(row):
                measured = self._measured(group)
                if measured is not None and _over(measured, group.threshold) == above:
                    return True
        shop.change(place, at, old)
        return False

    def _repeat(self, group: Group) -> None:
        """The same group below rows that fail a condition, where what identifies it is one of them."""
        shop, own = self._shop, [self._shop.rows[table][at] for table, at in group.rows]
        for link in (link for link in shop.parts[group.table].links if group.kept.keys() & {*link.places}):
            target = shop.target(link, group.model)
            for row in islice(self._variants(link.target, target, {}), _REPEATED) if target else ():
                shop.add(link.target, row)
                before, changes = self._measured(group), link.reference(row)
                for at, one in enumerate(own if len(own) <= self._left else ()):
                    place = self._add(group, shop.copied(group.table, one, changes))
                    if at == 0 and place is not None and self._measured(group) != before:  # no group of its own
                        self._drop(group, place)
                        break


def _over(measured: float | None, threshold: Threshold) -> bool:
    """Whether a measure is on the upper side of a threshold."""
    if measured is None:
        return False
    return measured > _NEAR if threshold.operator in {">", "<="} else measured >= -_NEAR
