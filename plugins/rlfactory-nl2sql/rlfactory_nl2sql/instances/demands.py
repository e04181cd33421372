"""What an instance's rows must have, given the gold query's constants.

Most of it are values of a column at, inside and just outside the boundaries that the constants define.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

from rlfactory_nl2sql.checks.constants import Constant
from rlfactory_nl2sql.instances.domains import ISO_DATE, Domain, Kind, distinct, kind_of
from rlfactory_nl2sql.instances.links import Link
from rlfactory_nl2sql.schema import Table

_MOST_SHOWN = 60  # for a larger LIMIT no rows are added
_MOST_GROUPED = 140  # limit of the rows in all groups together
_ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_GROUPED = frozenset(f"{name}{order}" for name in ("count", "sum", "avg", "min", "max") for order in _ORDERS)
NULL_TESTS = frozenset({"null", "not null"})
_OBSERVED = 12  # given values that are sorted into inside and beside, besides the made ones
_MADE_OFTEN = 4  # a value around a constant is so many times as likely as a given value
_EXACT_OFTEN = 5  # the constant itself is so many times as likely as a value around it
_YEAR, _YEAR_MONTH, _PART = re.compile(r"\d{4}"), re.compile(r"\d{4}-\d{2}"), re.compile(r"\d{2}")


@dataclass(frozen=True, slots=True)
class Demands:
    """Requirements of the rows."""

    boundaries: Mapping[tuple[str, int], Boundary]  # by table and place of the column
    groups: tuple[int, ...]  # at and beside the sizes in the query's conditions on COUNT
    least: int  # the sum of OFFSET and LIMIT; the answer should have more rows. 0: no requirement

    def unsized(self) -> Demands:
        """Without requirements of numbers of rows."""
        return replace(self, groups=(), least=0)

    def unmet(self, at: tuple[str, int]) -> Demands:
        """With one boundary that has no row inside."""
        return replace(self, boundaries={**self.boundaries, at: replace(self.boundaries[at], inside=(), ends=())})


def demands_of(
    tables: Mapping[str, Table],
    domains: Mapping[str, Sequence[Domain]],
    links: Mapping[str, Sequence[Link]],
    constants: Sequence[Constant],
) -> Demands:
    """The requirements that follow from the constants.

    A condition on a column that refers to another column applies to that one, because the values come from it.
    """
    places = {
        (name.lower(), column.name.lower()): (name, place)
        for name, table in tables.items()
        for place, column in enumerate(table.columns)
    }
    asked: dict[tuple[str, int], list[Constant]] = {}
    for constant in constants:
        named = places.get(((constant.table or "").lower(), (constant.column or "").lower()))
        if named is not None:
            asked.setdefault(_origin(named, links), []).append(constant)
    found = {at: boundary(domains[at[0]][at[1]], mine) for at, mine in asked.items()}
    boundaries = {at: one for at, one in found.items() if one is not None}
    shown = [int(one.value) for one in constants if one.operator in {"limit", "offset"}]
    return Demands(boundaries, _groups(constants), sum(shown) if sum(shown) <= _MOST_SHOWN else 0)


def _origin(named: tuple[str, int], links: Mapping[str, Sequence[Link]]) -> tuple[str, int]:
    """The column at the end of a column's links, from which its values come."""
    seen = {named}
    while True:
        table, place = named
        steps = [
            (link.target, to)
            for link in links[table]
            for of, to in zip(link.places, link.target_places, strict=True)
            if of == place and (link.target, to) not in seen
        ]
        if not steps:
            return named
        named = steps[0]
        seen.add(named)


def _groups(constants: Sequence[Constant]) -> tuple[int, ...]:
    asked = [int(one.value) for one in constants if one.operator.startswith("count")]
    sizes = dict.fromkeys(max(count + more, 1) for count in asked for more in (1, 0, 2, -1))
    kept: list[int] = []
    for size in sizes:
        if sum(kept) + size <= _MOST_GROUPED:
            kept.append(size)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Boundary:
    """Values of one column, sorted by the gold query's conditions on the column."""

    inside: tuple[Any, ...]  # meet as many of the conditions as one value can; empty if no row may meet them
    beside: tuple[Any, ...]  # meet fewer conditions; most are close to meeting one more
    ends: tuple[Any, ...] = ()  # the least and the greatest made value inside, for numbers and times
    outside: tuple[Any, ...] = ()  # the made values beside, likewise
    of_nulls: bool = False  # whether the condition is IS NULL or IS NOT NULL; otherwise some values become NULL later


def boundary(domain: Domain, constants: Sequence[Constant]) -> Boundary | None:
    """The boundary of the constants of one column; None if they are of another kind than its values."""
    nulls = {constant.operator for constant in constants if constant.operator in NULL_TESTS}
    constants = [constant for constant in constants if constant.operator not in NULL_TESTS]
    made = distinct(value for constant in constants for value in around(domain, constant) if domain.allows(value))
    if not made:
        return _boundary_of_nulls(domain, nulls)
    seen = [value for value in domain.known[:_OBSERVED] if value not in made]
    met = [frozenset(at for at, one in enumerate(constants) if _meets(value, one)) for value in (*made, *seen)]
    # With OR, perhaps no value meets all. A value is inside unless another meets the same conditions and more.
    good = [bool(mine) and not any(mine < other for other in met) for mine in met]
    exact = {_plain(constant.value) for constant in constants}
    sides: dict[bool, list[Any]] = {True: [], False: []}
    for at, value in enumerate((*made, *seen)):
        often = 1 if at >= len(made) else _MADE_OFTEN * (_EXACT_OFTEN if _plain(value) in exact else 1)
        sides[good[at]] += [value] * often
    inside, beside = tuple(sides[True] or sides[False]), tuple(sides[False] or sides[True])
    drawn = [value for value in made if value in inside]
    if domain.closed or domain.kind is Kind.TEXT or not drawn or any(one.operator in _GROUPED for one in constants):
        return Boundary(inside, beside)
    least, greatest = min(drawn), max(drawn)
    others = [value for value in made if value in beside]
    if domain.kind in {Kind.INTEGER, Kind.REAL}:
        below = max((value for value in others if value < least), default=None)
        above = min((value for value in others if value > greatest), default=None)
        others += [value for value in (below, above) if value is not None] * 2  # the nearest most often
    return Boundary(inside, beside, distinct((least, greatest)), tuple(others))


def _boundary_of_nulls(domain: Domain, asked: Collection[str]) -> Boundary | None:
    if len(asked) != 1 or not domain.nulls or not domain.known:
        return None
    null, known = (None,), domain.known[:_OBSERVED]
    inside, beside = (null, known) if "null" in asked else (known, null)
    return Boundary(inside, beside, of_nulls=True)


def _plain(value: Any) -> Any:
    """A form that is equal for equal values of different types."""
    number = _number(value)
    return str(value) if math.isnan(number) else number


def around(domain: Domain, constant: Constant) -> Iterator[Any]:
    """Values of the column's kind, at and beside a constant."""
    value = constant.value
    if domain.closed:
        yield from (known for known in domain.known if known == value)
    elif domain.kind in {Kind.INTEGER, Kind.REAL}:
        yield from _numbers_around(domain, value)
        if constant.operator.startswith("sum"):
            yield from _numbers_around(domain, _number(value) / 2)
    elif domain.kind is Kind.ISO_DATE:
        yield from _dates_around(domain, str(value).strip("%"))
    elif domain.kind is Kind.MOMENT:
        yield from _moments_around(domain, str(value).strip("%"))
    elif domain.kind is Kind.TEXT:
        yield from (text for text in _texts(domain, constant) if domain.takes(text))


def _texts(domain: Domain, constant: Constant) -> Iterator[str]:
    if constant.operator == "like":
        return _matching(str(constant.value), domain)
    if constant.operator == "glob":
        return _matching(str(constant.value).replace("*", "%").replace("?", "_"), domain)
    if constant.operator == "function" and isinstance(constant.value, int):
        return _lengths_around(constant.value, domain)
    return _texts_around(str(constant.value), domain)


def _numbers_around(domain: Domain, value: Any) -> Iterator[Any]:
    number = _number(value)
    if not math.isfinite(number):
        return
    if domain.kind is Kind.INTEGER:
        yield from (math.floor(number) - 1, math.floor(number), math.ceil(number), math.ceil(number) + 1)
        return
    step, digits = domain.step, max(domain.decimals, 1)
    make: Any = Decimal if isinstance(step, Decimal) else float
    exact = make(str(value))
    for beside in (step * 0, step, make("0.5"), make("1")):
        yield from (round(exact - beside, digits), round(exact + beside, digits))


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _dates_around(domain: Domain, text: str) -> Iterator[str]:
    """Dates at and beside a date, a year, a year's month, or a part that may be a month or a day."""
    known = [match for value in domain.known[:_OBSERVED] if (match := ISO_DATE.match(str(value)))]
    match = ISO_DATE.match(text)
    for year, month, day, tail in (one.groups() for one in known):
        if match:
            yield text if match[4] else text + tail
            yield from (other.isoformat() + tail for other in _days_beside(text[:10]))
        elif _YEAR.fullmatch(text):
            years = (f"{int(text) + more:04}" for more in (-1, 0, 0, 1))
            yield from (f"{other}-{month}-{min(int(day), 28):02}{tail}" for other in years)
            yield from (f"{text}-01-01{tail}", f"{text}-12-31{tail}")
        elif _YEAR_MONTH.fullmatch(text):
            yield from (
                f"{text}-01{tail}",
                f"{text}-28{tail}",
                f"{text[:4]}-{month}-01{tail}",
                f"{year}{text[4:]}-01{tail}",
            )
        elif _PART.fullmatch(text):
            if 1 <= int(text) <= 12:
                yield f"{year}-{text}-{min(int(day), 28):02}{tail}"
            if 1 <= int(text) <= 28:
                yield f"{year}-{month}-{text}{tail}"


def _days_beside(text: str) -> Iterator[dt.date]:
    try:
        date = dt.date.fromisoformat(text)
        yield from (date - dt.timedelta(days=1), date + dt.timedelta(days=1))
        yield from (date - dt.timedelta(days=365), date + dt.timedelta(days=365))
    except (ValueError, OverflowError):  # the query's text may be no date, such as 2023-02-30
        return


def _moments_around(domain: Domain, text: str) -> Iterator[Any]:
    known = [value for value in domain.known[:_OBSERVED] if kind_of(value) is Kind.MOMENT]
    for made in _dates_around(replace(domain, known=tuple(str(value) for value in known)), text):
        with suppress(ValueError):  # as above
            yield type(known[0]).fromisoformat(made)


def _texts_around(text: str, domain: Domain) -> Iterator[str]:
    """The text itself, in other letter case, longer, and shorter."""
    yield text
    yield from (text.lower(), text.upper(), text.swapcase())
    for other in domain.known[:2]:
        yield from (f"{text} {other}", f"{other} {text}")
    yield from (text[:-1], text[1:], text + text[-1:])


def _matching(pattern: str, domain: Domain) -> Iterator[str]:
    """Texts that match a LIKE pattern, with long, short and empty text for its %, and texts that nearly match."""
    matches = _like(pattern)
    fillers = [str(other) for other in domain.known if not matches.fullmatch(str(other))][:3] or ["a"]
    bare = pattern.replace("_", "a")
    inner = bare.strip("%").replace("%", "")
    yield bare.replace("%", "")
    for filler in fillers:
        yield bare.replace("%", filler)
        yield bare.replace("%", filler[:1])
        yield from (inner + filler, filler + inner, filler + inner + filler)
    for part in (inner[:-1], inner[1:]):
        yield from (part, part + fillers[0], fillers[0] + part)
    yield from (inner.upper(), inner.lower())


def _lengths_around(length: int, domain: Domain) -> Iterator[str]:
    for text in domain.known[:3]:
        long = text * (length // max(len(text), 1) + 2)
        yield from (long[:size] for size in (length - 1, length, length + 1) if size > 0)


def _meets(value: Any, constant: Constant) -> bool:
    """Whether a value meets the condition, as far as can be known. A date is compared with the given part of a date."""
    wanted, given, compare = constant.value, value, _ORDERS.get(constant.operator)
    if constant.operator == "like":
        return isinstance(value, str) and _like(str(wanted)).fullmatch(value) is not None
    if constant.operator == "glob":
        return isinstance(value, str) and fnmatchcase(value, str(wanted))
    if kind_of(value) in {Kind.ISO_DATE, Kind.MOMENT}:
        wanted, given = str(wanted), str(value)
        if constant.operator == "function" and _PART.fullmatch(wanted):
            return wanted in {given[5:7], given[8:10]}
        if constant.operator == "function":
            return given.startswith(wanted)
    if compare is None:
        return constant.operator == "function" and str(given).lower() == str(wanted).lower()
    try:
        return bool(compare(given, wanted))
    except TypeError:
        return False


def _like(pattern: str) -> re.Pattern[str]:
    parts = (".*" if sign == "%" else "." if sign == "_" else re.escape(sign) for sign in pattern)
    return re.compile("".join(parts), re.IGNORECASE | re.DOTALL)
