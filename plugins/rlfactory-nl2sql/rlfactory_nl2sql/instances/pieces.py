"""Values of a shaped column (see `shapes`) for conditions on pieces of them, which SQLite evaluates itself.

``substr(d, -4) = '2018'`` says nothing of what whole values look like. So given values, and the same with a part of the
condition's literals in the place of a piece, are tried: those that meet it, and those that miss it by little.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from rlfactory_nl2sql.checks.constants import COLUMN, Test
from rlfactory_nl2sql.connection import quoted
from rlfactory_nl2sql.instances.domains import Kind, Sample, distinct, learn
from rlfactory_nl2sql.instances.scratch import Scratch
from rlfactory_nl2sql.instances.shapes import LONGEST, forms_first
from rlfactory_nl2sql.schema import Table

_TRIED = 64  # conditions, by columns, whose values are kept
_LONGEST = 4096  # bytes of a value in an expression that nobody has read
_MOST_TESTS = 24  # of a column
_MOST_LITERALS = 40  # in all of them
_BASES = 4  # values that are changed, of those that meet most conditions and of all
_MADE = 200  # changed values in a round
Met = frozenset[int]
"""The numbers of the conditions that a value meets."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A value, and what the conditions say of it."""

    value: str | int
    given: bool
    met: Met


@lru_cache(_TRIED)
def tried(table: Table, sample: Sample, place: int, tests: tuple[Test, ...]) -> Sequence[Tried]:
    """Given and changed values of a column, those first that meet most conditions; none if SQLite evaluates none."""
    domain = learn(table.columns[place], sample, place)
    shape, type_ = domain.shape, int if domain.kind is Kind.NUMBER else str
    assert shape is not None
    known = [str(value) for value in domain.known if isinstance(value, str | int)]
    name = quoted(table.columns[place].name)

    def ask(tests: Sequence[Test], texts: Iterable[str], *, given: bool) -> Iterator[Tried]:
        asked = [test.holds.replace(COLUMN, name) for test in tests]
        for text in texts:
            try:
                answer = scratch.ask({place: type_(text)}, *asked)
            except (sqlite3.Error, OverflowError, UnicodeError):  # the column cannot have it
                continue
            yield Tried(type_(text), given, frozenset(at for at, holds in enumerate(answer) if holds))

    with closing(Scratch(table, sample.rows[0] if sample.rows else None, _LONGEST)) as scratch:
        usable = [test for test in tests[:_MOST_TESTS] if any(ask([test], known, given=True))]
        found = list(ask(usable, known, given=True))
        literals = distinct(one for test in usable for one in test.literals if len(str(one)) <= LONGEST)
        for _ in usable[:2]:  # two rounds, so that a value may have the pieces of two conditions
            found.sort(key=lambda one: -len(one.met))
            bases = [*(str(one.value) for one in found[:_BASES]), *forms_first(known)[:_BASES]]
            near = (new for one in bases for literal in literals[:_MOST_LITERALS] for new in shape.near(literal, one))
            there = {str(one.value) for one in found}
            new = (one for one in dict.fromkeys(near) if one not in there and shape.fits(one))
            found += ask(usable, islice(new, _MADE), given=False)
    return sorted(found, key=lambda one: -len(one.met)) if usable else ()
