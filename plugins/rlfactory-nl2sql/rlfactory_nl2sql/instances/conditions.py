"""What rows must have for a query's conditions: values at, inside and just outside the boundaries of its constants."""

from __future__ import annotations

import datetime as dt
import math
import operator
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import cycle
from typing import Any

from rlfactory_nl2sql.checks.constants import Constant
from rlfactory_nl2sql.instances.domains import ISO_DATE, Domain, Kind, distinct, kind_of
from rlfactory_nl2sql.instances.links import Part
from rlfactory_nl2sql.instances.pieces import Met, tried

NULL_TESTS = frozenset({"null", "not null"})
_MOST_SHOWN = 60  # for a larger LIMIT no rows are added, since a database has to stay small
_GIVEN = 12  # given values that are sorted into inside and beside: enough to have some of each
_ALIKE = 3  # values of each choice of conditions that are near a boundary
_MOST_KINDS = 40  # of such choices
_ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ANY_DAY = dt.date(2000, 1, 1)
_YEAR, _PART = re.compile(r"\d{4}(-\d{2})?$"), re.compile(r"\d{2}")

Groups = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Boundary:
    """Values of one column, sorted by the conditions on it: made ones, and given ones."""

    inside: Groups  # meet as many of the conditions as one value can; empty if no row may meet them
    beside: Groups  # meet fewer conditions; most are close to meeting one more

    @classmethod
    def between(cls, *groups: Sequence[tuple[Any, Met]]) -> Boundary | None:
        """The boundary between values, each with the conditions that it meets; None without any.

        With OR, perhaps no value meets all. A value is inside unless another meets the same conditions and more.
        """
        every = {met for group in groups for _, met in group}
        good = {met for met in every if met and not any(met < other for other in every)}
        inside, beside = (
            [some for group in groups if (some := [value for value, met in group if (met in good) is wanted])]
            for wanted in (True, False)
        )
        return cls(inside or beside, beside or inside) if inside or beside else None


@dataclass(frozen=True, slots=True)
class Conditions:
    """Requirements of the rows."""

    boundaries: Mapping[tuple[str, int], Boundary]  # by table and place of the column
    least: int  # the sum of OFFSET and LIMIT; the answer should have more rows. 0: no requirement

    def bound(self, table: str) -> Mapping[int, Boundary]:
        """The boundaries of a table's columns, by their places."""
        return {place: one for (name, place), one in self.boundaries.items() if name == table}

    def without(self, unmet: int | None, seed: int) -> Conditions:
        """In an order by ``seed``, no row meets the condition of this number; None: no change."""
        if unmet is None:
            return self
        places = random.Random(seed).sample(list(self.boundaries), len(self.boundaries))
        hidden = {at: replace(self.boundaries[at], inside=()) for at in places[unmet : unmet + 1]}
        return Conditions({**self.boundaries, **hidden}, 0)


def conditions_of(parts: Mapping[str, Part], constants: Sequence[Constant]) -> Conditions:
    """The requirements that follow from the constants.

    A condition on a column that refers to another column applies to that one, because the values come from it.
    """
    places = {
        (name.lower(), column.name.lower()): (name, place)
        for name, part in parts.items()
        for place, column in enumerate(part.table.columns)
    }
    asked: dict[tuple[str, int], list[Constant]] = {}
    for constant in constants:
        named = places.get(((constant.table or "").lower(), (constant.column or "").lower()))
        if named is not None:
            asked.setdefault(_origin(named, parts), []).append(constant)
    found = {at: _boundary_of(parts[at[0]], at[1], mine) for at, mine in asked.items()}
    shown = sum(int(one.value) for one in constants if one.operator in {"limit", "offset"})
    return Conditions(
        {at: one for at, one in found.items() if one is not None},
        shown if shown <= _MOST_SHOWN else 0,
    )


def _origin(at: tuple[str, int], parts: Mapping[str, Part]) -> tuple[str, int]:
    """The column at the end of a column's links, from which its values come."""
    seen = {at}
    for _ in parts:
        table, place = at
        links = (link for link in parts[table].links if place in link.places)
        ends = ((link.target, link.target_places[link.places.index(place)]) for link in links)
        at = next((end for end in ends if end not in seen), at)
        seen.add(at)
    return at


def _boundary_of(part: Part, place: int, constants: Sequence[Constant]) -> Boundary | None:
    domain = part.domains[place]
    if domain.shape is None:
        return boundary(domain, [one for one in constants if one.operator != "glob"])
    tests = tuple(dict.fromkeys(one.test for one in constants if one.test is not None))
    if not tests:
        return boundary(domain, [one for one in constants if one.operator in NULL_TESTS])
    near: list[tuple[Any, Met]] = []
    others: list[tuple[Any, Met]] = []
    taken = Counter[tuple[Met, bool]]()
    for one in tried(part.table, part.sample, place, tests):
        if domain.accepts(one.value):
            taken[one.met, one.given] += 1
            close = taken[one.met, one.given] <= _ALIKE and len(taken) <= _MOST_KINDS
            if close or one.given:
                (near if close else others).append((one.value, one.met))
    return Boundary.between(near, others)


def boundary(domain: Domain, constants: Sequence[Constant]) -> Boundary | None:
    """The boundary of the constants of one column; None if they are of another kind than its values."""
    nulls = {constant.operator for constant in constants if constant.operator in NULL_TESTS}
    constants = [constant for constant in constants if constant.operator not in NULL_TESTS]
    made = distinct(value for constant in constants for value in around(domain, constant) if domain.accepts(value))
    if not made:
        if len(nulls) != 1 or not domain.nulls or not domain.known:
            return None
        null, known = ((None,),), (domain.known[:_GIVEN],)
        return Boundary(null, known) if "null" in nulls else Boundary(known, null)

    def met(values: Sequence[Any]) -> list[tuple[Any, Met]]:
        return [(value, frozenset(at for at, one in enumerate(constants) if _meets(value, one))) for value in values]

    return Boundary.between(met(made), met([value for value in domain.known[:_GIVEN] if value not in made]))


def dealt(groups: Groups, rng: random.Random) -> Iterator[Any]:
    """A value of each group in turn, without end. All of a group come in random order before one comes again."""
    decks = [_shuffled(group, rng) for group in groups]
    return (next(deck) for deck in cycle(decks))


def _shuffled(values: Sequence[Any], rng: random.Random) -> Iterator[Any]:
    while True:
        yield from rng.sample(values, len(values))


def around(domain: Domain, constant: Constant) -> Iterator[Any]:
    """Values of the column's kind, at and beside a constant."""
    value, text = constant.value, str(constant.value)
    if domain.closed:
        yield from (known for known in domain.known if known == value)
    elif domain.kind is Kind.NUMBER:
        with suppress(ArithmeticError):  # it is no number
            yield from _numbers_around(domain, Decimal(text))
    elif domain.kind is Kind.DATE:
        yield from _dates_around(domain, text.strip("%"))
    elif domain.kind is Kind.TEXT and constant.operator == "like":
        yield from filter(domain.fits, _matching(text, domain))
    elif domain.kind is Kind.TEXT:
        if constant.operator != "function" or domain.fits(text):
            yield text
        yield from filter(domain.fits, _texts_around(text, domain.known))


def _texts_around(text: str, known: Sequence[Any]) -> Iterator[str]:
    yield from (text.lower(), text.upper(), text.swapcase())
    yield from (made for other in known[:2] for made in (f"{text} {other}", f"{other} {text}"))
    yield from (text[:-1], text[1:], text + text[-1:])
    with suppress(ValueError, OverflowError):  # it is no time of a day
        time = dt.datetime.combine(_ANY_DAY, dt.time.fromisoformat(text))
        beside = (dt.timedelta(seconds=seconds) for seconds in (-1, 1, -60, 60, -3600, 3600))
        yield from ((time + one).time().isoformat()[: len(text)] for one in beside)


def _numbers_around(domain: Domain, exact: Decimal) -> Iterator[Any]:
    for beside in ("0", str(domain.step), "0.5", "1") if exact.is_finite() else ():
        for number in (exact - Decimal(beside), exact + Decimal(beside)):
            if isinstance(domain.step, int):
                yield from (math.floor(number), math.ceil(number))
            else:
                yield round(type(domain.step)(number), max(domain.decimals, 1))


def _dates_around(domain: Domain, text: str) -> Iterator[Any]:
    """Dates at and beside a date, a year, a year's month, or a part that may be a month or a day."""
    for value in domain.known[:_GIVEN]:
        found = ISO_DATE.match(str(value))
        for made in _parts_around(text, *found.groups()) if found else ():
            with suppress(ValueError):  # there may be no such date, for example 2023-02-30
                dt.date.fromisoformat(made[:10])
                yield made if isinstance(value, str) else type(value).fromisoformat(made)


def _parts_around(text: str, year: str, month: str, day: str, tail: str) -> Iterator[str]:
    """Texts of dates: what ``text`` leaves open has these parts."""
    day = f"{min(int(day), 28):02}"
    if date := ISO_DATE.match(text):
        with suppress(ValueError, OverflowError):
            exact = dt.date.fromisoformat(text[:10])
            yield from ((exact + dt.timedelta(days)).isoformat() + (date[4] or tail) for days in (0, -1, 1, -365, 365))
    elif _YEAR.match(text):
        rest = f"-{month}-{day}"[len(text) - 4 :]
        yield from (f"{int(text[:4]) + more:04}{text[4:]}{rest}{tail}" for more in (-1, 0, 1))
        yield from (f"{text}{end[len(text) :]}{tail}" for end in ("0000-01-01", "0000-12-28", "0000-12-31"))
        yield f"{text[:4]}-{month}-{day}{tail}"
    elif _PART.fullmatch(text):
        yield from (f"{year}-{text}-{day}{tail}", f"{year}-{month}-{text}{tail}")


def _matching(pattern: str, domain: Domain) -> Iterator[str]:
    """Texts that match a LIKE pattern, with long, short and empty text for its %, and texts that nearly match."""
    matches = _like(pattern)
    fillers = [str(other) for other in domain.known if not matches.fullmatch(str(other))][:3] or ["a"]
    bare = pattern.replace("_", "a")
    inner = bare.replace("%", "")
    yield from (bare.replace("%", filler) for filler in ("", *fillers, *(filler[:1] for filler in fillers)))
    yield from (inner[:-1], inner[1:], inner.upper(), inner.lower())


def _meets(value: Any, constant: Constant) -> bool:
    """Whether a value meets the condition, as far as can be known. A date is compared with the given part of a date."""
    wanted, given = constant.value, value
    if constant.operator == "like":
        return isinstance(value, str) and _like(str(wanted)).fullmatch(value) is not None
    if kind_of(value) is Kind.DATE:
        wanted, given = str(wanted), str(value)
        if constant.operator == "function":
            return wanted in {given[5:7], given[8:10]} if _PART.fullmatch(wanted) else given.startswith(wanted)
    if constant.operator == "function":
        return str(given).lower() == str(wanted).lower()
    compare = _ORDERS.get(constant.operator)
    try:
        return compare is not None and bool(compare(given, wanted))
    except TypeError:
        return False


def _like(pattern: str) -> re.Pattern[str]:
    parts = (".*" if sign == "%" else "." if sign == "_" else re.escape(sign) for sign in pattern)
    return re.compile("".join(parts), re.IGNORECASE | re.DOTALL)
