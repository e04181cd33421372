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
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, product
from typing import Any

from rlfactory_nl2sql.checks.scopes import Origin
from rlfactory_nl2sql.checks.thresholds import Threshold
from rlfactory_nl2sql.connection import Row
from rlfactory_nl2sql.instances.conditions import Conditions
from rlfactory_nl2sql.instances.domains import Kind
from rlfactory_nl2sql.instances.links import Part
from rlfactory_nl2sql.instances.variants import Variants
from rlfactory_nl2sql.instances.workshop import Place, Workshop

_MOST = 1_300  # rows that are added to an instance
_SMALL = 90  # rows of a group: a larger one is only made in some instances
_TRIED = 8  # rows that are tried as models of a group
_VARIANTS = 20  # rows of a group that fail a condition, or meet it at its edge
_REPEATED = 4  # groups that are made again with a change in what identifies them
_BATCHES = 12  # of copies, until a group has its size
_MOST_MET = 320  # likewise, for another threshold
_SINGLE = 60  # rows of a group by which an average or a share is set
_NEAR = 1e-9
# By number in each eight: the sides of the threshold on which there are groups. Others are left as they are.
_SIDES: Mapping[int, str] = {1: "both", 2: "both", 5: "below", 6: "both", 0: "below"}
_ALONE: Mapping[int, str] = {1: "above", 2: "below", 5: "below", 6: "above", 0: "above"}  # where there is one group
_OTHER = {"above": "below", "below": "above", "both": "both"}
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
    if not thresholds or number % 8 not in _SIDES:
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
    held: set[int]  # columns that decide to which group a row belongs
    rows: list[Place] = field(default_factory=list)
    ups: list[Maker] = field(default_factory=list)  # rows that raise the left side over the right one
    downs: list[Maker] = field(default_factory=list)

    @property
    def kept(self) -> dict[int, Any]:
        """The values of the held columns."""
        return {at: self.model[at] for at in self.held}


class Aiming:
    """Adds the groups for the thresholds of one query to an instance."""

    def __init__(self, shop: Workshop, thresholds: Sequence[Threshold], conditions: Conditions, number: int) -> None:
        self._shop, self._rng, self._thresholds = shop, shop.rng, thresholds
        self._number, self._left = number, _MOST
        self._models = {name: list(rows.values()) for name, rows in shop.rows.items()}
        keys = [one for threshold in thresholds for one in threshold.keys if one is not None]
        self._variants = Variants(shop, self._models, conditions, keys, number)

    def groups(self, threshold: Threshold) -> None:
        """Make the groups for one threshold, as far as they can be measured and there is room for them."""
        single = not threshold.keys or not threshold.fixed
        side = (_ALONE if single else _SIDES)[self._number % 8]
        if single and self._number > 8:
            side = _OTHER[side]
        try:
            for one in ("above", "below") if side == "both" else (side,):
                self._group(threshold, above=one == "above")
        except _UNMEASURED:
            return

    def _group(self, threshold: Threshold, *, above: bool) -> None:
        group = self._begun(threshold)
        if group is None:
            return
        for row in islice(self._variants.of(group.table, group.model, group.held, failing=not above), _VARIANTS):
            self._add(group, row)
        for other in self._thresholds:
            if other is not threshold and other.keys == threshold.keys:
                self._meet(group, other)
        reached = self._climb(group, above=above)
        self._set(group, above=above)
        self._beget(group)
        if not threshold.fixed:  # further rows would move the other side
            return
        if reached and above:
            self._repeat(group)
        elif reached:
            self._pair(group)

    def _begun(self, threshold: Threshold) -> Group | None:
        """A group of few rows to which others can be added, with a key of its own if that can be."""
        shop = self._shop
        before = shop.measure(threshold.measure)
        origins = [one for one in threshold.keys if one is not None]
        tables = sorted(threshold.tables, key=shop.depth, reverse=True)
        for table, origin in product(tables, (*origins, None)):
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
                    group = Group(threshold, table, row, changed[0], held, [place])
                    self._find_movers(group)
                    if group.ups:
                        return group
                    for added in group.rows[1:]:
                        shop.remove(added)
                shop.remove(place)
        return None

    def _find_movers(self, group: Group) -> None:
        """Find rows that change the group's measure when they are added."""
        shop, table, models = self._shop, group.table, self._models[group.table]
        keep = group.kept

        def like(other: Sequence[Any]) -> Maker:
            return lambda: shop.copied(table, other, keep)

        def varied() -> list[Any] | None:
            return shop.copied(table, self._rng.choice((group.model, *models[:_TRIED])), keep)

        if not group.threshold.fixed:
            others = (partial(shop.copied, table, other, {}) for other in self._rng.sample(models, min(len(models), 4)))
            group.downs = [maker for maker in others if (self._trial(group, maker) or 0) < 0]

        def anew(origin: Origin) -> list[Any] | None:
            row = varied()
            return shop.renewed(table, row, origin) if row is not None else None

        if group.threshold.monotone:
            arguments = group.threshold.arguments
            renewing: list[list[Maker]] = [
                [partial(shop.renewed, table, group.model, one), partial(anew, one)] for one in arguments
            ]
            plain: list[Maker] = [like(group.model), varied]
            group.ups = next((makers for makers in (plain, *renewing) if (self._trial(group, makers[0]) or 0) > 0), [])
            return
        for other in (group.model, *self._rng.sample(models, min(len(models), 2 * _TRIED))):
            step = self._trial(group, like(other))
            if step:
                (group.ups if step > 0 else group.downs).append(like(other))
            if len(group.rows) < 3:  # an average has to be one of several values
                self._add(group, like(other)())
            if len(group.ups) > 1 and len(group.downs) > 1:
                return

    def _trial(self, group: Group, maker: Maker) -> float | None:
        before = self._measured(group)
        row = maker()
        if row is None or before is None:
            return None
        place = self._shop.add(group.table, row)
        after = self._measured(group)
        self._shop.remove(place)
        return None if after is None else after - before

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
        group.rows.remove(place)
        return self._shop.remove(place)

    def _meet(self, group: Group, other: Threshold) -> None:
        """Add rows until another threshold of the same groups is met."""
        shop, table, keep = self._shop, group.table, group.kept
        makers: list[Maker] = [partial(shop.copied, table, group.model, keep)]
        makers += [partial(shop.renewed, table, group.model, origin) for origin in other.arguments]
        for maker in makers:
            before = self._measured(group, other)
            for _ in range(_MOST_MET):
                if _over(before, other):
                    return
                self._add(group, maker())
                now = self._measured(group, other)
                if now == before:
                    break
                before = now

    def _climb(self, group: Group, *, above: bool) -> bool:
        """Bring the group to the last measure below the threshold, or the first one above it."""
        threshold = group.threshold
        if _over(self._measured(group), threshold):
            self._descend(group)
        for _ in range(_BATCHES):
            before = self._measured(group)
            if _over(before, threshold):
                break
            step = self._trial(group, group.ups[0])
            if not step or step <= 0 or before is None:
                return False
            wanted = max(math.floor(-before / step), 1) if threshold.monotone else 1
            if wanted > self._left or (wanted > _SMALL and self._number not in _LARGE):
                return False
            for at in range(wanted):
                self._add(group, group.ups[at % len(group.ups)]())
        for _ in range(_SINGLE):
            if _over(self._measured(group), threshold):
                break
            self._add(group, group.ups[0]())
        return self._step_back(group, above=above)

    def _step_back(self, group: Group, *, above: bool) -> bool:
        """Remove rows while the group stays above the threshold, and one more if it is to be below."""
        threshold = group.threshold
        if not _over(self._measured(group), threshold):
            return False
        if not threshold.fixed and group.downs:  # a copy has raised both sides
            for at in range(_SINGLE):
                place = self._add(group, group.downs[at % len(group.downs)]())
                if not _over(self._measured(group), threshold):
                    if above and place is not None:
                        self._drop(group, place)
                    return True
        for place in group.rows[: -_SINGLE - 1 : -1]:
            row = self._drop(group, place)
            if not _over(self._measured(group), threshold):
                if above:
                    self._add(group, row)
                return True
        return False

    def _descend(self, group: Group) -> None:
        """Take rows away, or add some, until the group is below the threshold. Rows without an effect stay."""
        shop, threshold = self._shop, group.threshold
        for at in range(_SINGLE if group.downs else 0):
            if not _over(self._measured(group), threshold):
                return
            self._add(group, group.downs[at % len(group.downs)]())
        for place in group.rows[:0:-1]:
            before = self._measured(group)
            if not _over(before, threshold):
                return
            row = self._drop(group, place)
            if self._measured(group) == before:
                self._add(group, row)
        if threshold.keys and threshold.fixed:
            return
        own = set(group.rows)
        others = [(group.table, at) for at in shop.rows[group.table] if (group.table, at) not in own]
        self._rng.shuffle(others)
        while others and _over(before := self._measured(group), threshold):
            some = [others.pop() for _ in range(min(len(others), 1 + max(int(before or 0) // 2, 0)))]
            rows = [shop.remove(place) for place in some]
            if self._measured(group) == before:
                for row in rows:
                    shop.add(group.table, row)

    def _set(self, group: Group, *, above: bool) -> None:
        """Change a number that is aggregated so that the threshold is met exactly, or missed by as little as can be."""
        part = self._shop.parts[group.table]
        names = [one.name for one in part.table.columns]
        for origin in group.threshold.arguments:
            at = names.index(origin.column) if origin.table == group.table else -1
            if at not in part.free or part.domains[at].kind is not Kind.NUMBER or part.domains[at].closed:
                continue
            for place in self._rng.sample(group.rows, min(len(group.rows), _TRIED)):
                if self._set_one(group, place, at, above=above):
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

    def _beget(self, group: Group) -> None:
        """Let rows that the query also reads refer to some of the group's, as far as the measure stays."""
        shop = self._shop
        links = [
            (table, link)
            for table in group.threshold.tables
            for link in shop.parts[table].links
            if link.target == group.table and table != group.table and self._models[table]
        ]
        for table, link in links:
            for place in group.rows[:_TRIED]:
                before, target = self._measured(group), shop.rows[group.table][place[1]]
                made = shop.copied(table, self._rng.choice(self._models[table]), link.reference(target))
                if made is not None:
                    child = shop.add(table, made)
                    if self._measured(group) != before:
                        shop.remove(child)

    def _pair(self, group: Group) -> None:
        """A second group of a few rows which differs from the group below only in what identifies it."""
        for origin in (one for one in group.threshold.keys if one is not None):
            row = self._shop.renewed(group.table, group.model, origin)
            if row is not None:
                keep = {at: row[at] for at in group.held}
                self._shop.add(group.table, row)
                for _ in range(2):
                    made = self._shop.copied(group.table, row, keep)
                    if made is not None:
                        self._shop.add(group.table, made)
                return

    def _repeat(self, group: Group) -> None:
        """The same group below rows that fail a condition, where what identifies it is one of them."""
        shop = self._shop
        for link in (link for link in shop.parts[group.table].links if {*link.places} & group.held):
            target = shop.target(link, group.model)
            for row in islice(self._variants.of(link.target, target, set(), failing=True), _REPEATED) if target else ():
                if len(group.rows) > self._left:
                    return
                shop.add(link.target, row)
                changes = link.reference(row)
                before, own = self._measured(group), list(group.rows)
                for place in own:
                    self._add(group, shop.copied(group.table, shop.rows[group.table][place[1]], changes))
                    if place is own[0] and self._measured(group) != before:  # it is no group of its own
                        self._drop(group, group.rows[-1])
                        break
                group.rows = own


def _over(measured: float | None, threshold: Threshold) -> bool:
    """Whether a measure is on the upper side of a threshold."""
    if measured is None:
        return False
    return measured > _NEAR if threshold.operator in {">", "<="} else measured >= -_NEAR
