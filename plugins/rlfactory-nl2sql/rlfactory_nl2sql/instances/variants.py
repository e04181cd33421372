"""Rows that differ from another one in a single value: beside or inside a condition, NULL, or another reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rlfactory_nl2sql.checks.scopes import Origin
from rlfactory_nl2sql.instances.conditions import Conditions
from rlfactory_nl2sql.instances.links import Link
from rlfactory_nl2sql.instances.workshop import Workshop


class Variants:
    """Makes them for the rows of one instance.

    Args:
        models: rows of each table to take values from.
        keys: what identifies groups, which stays.
        number: the instance's, by which others of the values come first.
    """

    def __init__(
        self,
        shop: Workshop,
        models: Mapping[str, Sequence[Sequence[Any]]],
        conditions: Conditions,
        keys: Sequence[Origin],
        number: int,
    ) -> None:
        self._shop, self._rng, self._models = shop, shop.rng, models
        self._conditions, self._keys, self._number = conditions, keys, number

    def of(self, table: str, model: list[Any], held: set[int], *, failing: bool, depth: int = 2) -> Iterator[list[Any]]:
        """Copies of a row with one value changed: beside or inside a condition, NULL, or a reference to another row.

        The first copies of all columns come before the second ones. With ``failing``, the first ones fail a condition.
        """
        part, rng = self._shop.parts[table], self._rng
        bound = self._conditions.bound(table)
        decks: list[tuple[bool, list[dict[int, Any]]]] = []  # whether others come before it, and its changes
        for at, domain in enumerate(part.domains):
            if at in held or at in part.keys.places or at not in part.free:
                continue
            null = [{at: None}] if domain.nulls and at not in part.keys.filled else []
            if at in bound:
                beside, inside = (
                    [{at: value} for group in side for value in self._turned(group) if value != model[at]]
                    for side in (bound[at].beside, bound[at].inside)
                )
                decks.append(
                    (False, [*beside[:2], *inside[:1], *null] if failing else [*inside[:1], *null, *beside[:1]])
                )
            else:
                decks.append((True, [*null, {at: rng.choice(self._models[table])[at]}]))
            decks += [(False, null)] if self._number % 2 and not failing else []
        keep = {at: model[at] for at in held}
        for link in part.links:
            leads = bool(held & {*link.places})
            optional = not leads and all(part.domains[at].nulls for at in link.places)
            others = self._others(link, model, leads, failing=failing, depth=depth)
            decks.append((not self._number % 2, [dict.fromkeys(link.places)] if optional else []))
            decks.append((False, [link.reference(other) for other in others]))
        ranked = [(rank, late, rng.random(), change) for late, deck in decks for rank, change in enumerate(deck)]
        ranked.sort(key=lambda one: one[:3])
        made = (self._shop.copied(table, model, keep | change) for *_, change in ranked)
        yield from (row for row in made if row is not None)

    def _turned(self, values: Sequence[Any]) -> list[Any]:
        """The values in their order, beginning with another one in each instance."""
        first = (self._number * 5 // 8) % max(len(values), 1)
        return [*values[first:], *values[:first]]

    def _others(
        self, link: Link, model: Sequence[Any], held: bool, *, failing: bool, depth: int
    ) -> Iterator[Sequence[Any]]:
        """Rows to which a row may refer instead: others, and copies of its own with one value changed."""
        shop, rng = self._shop, self._rng
        target, known = shop.target(link, model), list(shop.rows[link.target].values())
        if failing and not held:
            yield from rng.sample(known, min(len(known), 2))
        if target is not None and depth:
            keep = {at for at in shop.holding(link.target, self._keys) if held}
            for row in islice(self.of(link.target, target, keep, failing=failing, depth=depth - 1), 4):
                shop.add(link.target, row)
                yield row
