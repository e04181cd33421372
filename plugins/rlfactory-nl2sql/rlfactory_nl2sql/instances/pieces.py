"""Values of a shaped column (see `shapes`) for conditions on pieces of them, which SQLite evaluates itself.

``substr(d, -4) = '2018'`` says nothing of what whole values look like. So given values, and the same with a part of the
condition's literals in the place of a piece, are tried: those that meet it, and those that miss it by little.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from rlfactory_nl2sql.checks.constants import COLUMN, Test
from rlfactory_nl2sql.connection import quoted
from rlfactory_nl2sql.instances.domains import Domain, Kind, Sample, distinct, learn
from rlfactory_nl2sql.instances.scratch import Scratch
from rlfactory_nl2sql.instances.shapes import LONGEST, Shape, forms_first
from rlfactory_nl2sql.schema import Table

_TRIED = 64  # conditions, by columns, whose values are kept
_LONGEST = 4096  # bytes of a value in an expression that nobody has read
_MOST_TESTS = 24  # of a column
_MOST_LITERALS = 40  # in all of them
_BASES = 4  # values that are changed, of those that meet most conditions and of all
_MADE = 200  # changed values in a round
_NEAR = 3  # values of each kind that the conditions tell apart
_MOST_KINDS = 40
Met = frozenset[int]
"""The numbers of the conditions that a value meets."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A value, and what the conditions say of it."""

    value: str | int
    given: bool
    met: Met
    sides: tuple[tuple[Any, Any], ...]  # of each condition: what is compared, and with what


@lru_cache(_TRIED)
def tried(table: Table, sample: Sample, place: int, tests: tuple[Test, ...]) -> tuple[Tried, ...]:
    """Given and changed values of a column; none if SQLite cannot evaluate a condition."""
    domain = learn(table.columns[place], sample, place)
    assert domain.shape is not None
    known = [str(value) for value in domain.known if isinstance(value, str | int)]
    scratch = Scratch(table, sample.rows[0] if sample.rows else None, _LONGEST)
    column = _Column(scratch, place, quoted(table.columns[place].name), int if domain.kind is Kind.NUMBER else str)
    try:
        usable = [test for test in tests[:_MOST_TESTS] if any(column.ask([test], known, given=True))]
        found = list(column.ask(usable, known, given=True))
        for _ in usable[:2]:  # two rounds, so that a value may have the pieces of two conditions
            best = sorted(found, key=lambda one: -len(one.met))[:_BASES]
            bases = [*(str(one.value) for one in best), *forms_first(known)[:_BASES]]
            there = {str(one.value) for one in found}
            new = list(islice(_made(domain.shape, usable, bases, there), _MADE))
            found += column.ask(usable, new, given=False)
    finally:
        scratch.close()
    return tuple(found) if usable else ()


def sorted_sides(domain: Domain, found: Sequence[Tried]) -> tuple[list[list[Any]], list[list[Any]]]:
    """What is inside and what is beside a `conditions.Boundary`: first close values, then other given ones.

    With OR, perhaps no value meets all. A value is inside unless another meets the same conditions and more.
    """
    allowed = [one for one in found if domain.accepts(one.value)]
    every = {one.met for one in allowed}
    good = {met for met in every if met and not any(met < other for other in every)}
    near = {one.value: one for one in _near(sorted(allowed, key=lambda one: -len(one.met)))}
    others = [one for one in allowed if one.given and one.value not in near]
    inside, beside = (
        [[one.value for one in some if (one.met in good) is wanted] for some in (near.values(), others)]
        for wanted in (True, False)
    )
    return [group for group in inside if group], [group for group in beside if group]


def _near(found: Sequence[Tried]) -> Iterator[Tried]:
    """Values at the boundary of each condition and next to it, and of each choice of conditions some that meet it."""
    for at in range(len(found[0].sides) if found else 0):
        wanted = _order(found[0].sides[at][1])
        keys = [_order(one.sides[at][0]) for one in found]
        below = max((key for key in keys if key < wanted), default=None)
        above = min((key for key in keys if key > wanted), default=None)
        for end in (wanted, below, above):
            yield from islice((one for one, key in zip(found, keys, strict=True) if key == end), _NEAR)
    taken = Counter[tuple[Met, bool]]()
    for one in found:
        kind = (one.met, one.given)
        taken[kind] += 1
        if taken[kind] <= _NEAR and len(taken) <= _MOST_KINDS:
            yield one


def _order(value: Any) -> tuple[int, Any]:
    """A key that sorts as SQLite does."""
    return (0, 0) if value is None else (1, value) if isinstance(value, int | float) else (2, str(value))


def _made(shape: Shape, tests: Sequence[Test], bases: Sequence[str], there: set[str]) -> Iterator[str]:
    """New values of the shape, which are added to those that are there."""
    every = distinct(literal for test in tests for literal in test.literals if len(str(literal)) <= LONGEST)
    literals = every[:_MOST_LITERALS]
    for value in (one for text in bases for literal in literals for one in shape.near(literal, text)):
        if value not in there:
            there.add(value)
            if shape.fits(value):
                yield value


@dataclass(frozen=True, slots=True)
class _Column:
    scratch: Scratch
    place: int
    name: str  # in quotes
    type: type[str | int]

    def ask(self, tests: Sequence[Test], texts: Iterable[str], *, given: bool) -> Iterator[Tried]:
        """Each of the values that the column can have."""
        asked = [sql.replace(COLUMN, self.name) for test in tests for sql in (test.holds, test.subject, test.other)]
        for text in texts:
            value = self.type(text)
            try:
                answer = self.scratch.ask({self.place: value}, *asked)
            except (sqlite3.Error, OverflowError, UnicodeError):
                continue
            met = frozenset(at for at, holds in enumerate(answer[::3]) if holds)
            yield Tried(value, given, met, tuple(zip(answer[1::3], answer[2::3], strict=True)))
