"""Equality of two values of results: by value, whatever their type in the database.

1, 1.0, Decimal("1.00") and True are one value; '1' is another. NULL equals NULL and NaN equals NaN. Floats and
fractional decimals are equal within a relative tolerance. An integer, or a decimal without fraction, is exact: it
equals no other whole number, also none that is a float. Midnight equals its date, as in SQL.

Nearness is not transitive, so values cannot simply be rounded and hashed. `codes` gives equal codes to numbers that lie
together within the tolerance. Where numbers are so dense that each is near to many, only the closest count as equal.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain
from typing import Any
from uuid import UUID

_NUMBERS = (int, float, Decimal)
_PLAIN = frozenset({bool, int, str, bytes, type(None), datetime, time, timedelta, UUID})
_CLOSE = 1e-3  # share of the tolerance within which numbers of a dense column count as equal
_NEAR_ZERO = 1e-3  # share of the relative tolerance that is the absolute one, for sums that almost cancel out


class _Mark(Enum):
    """Marks for what Python cannot compare."""

    NAN = "NaN"
    START = "["
    END = "]"


class Nested(tuple[Any, ...]):
    """An array or record of PostgreSQL as a flat sequence of values, with marks around each level."""

    __slots__ = ()


def normal_column(values: Sequence[Any]) -> Sequence[Any]:
    """Values of a column in a form that Python hashes and compares by value, tolerance aside."""
    if set(map(type, values)) <= _PLAIN:
        return values
    return [Nested(_flat(value)) if isinstance(value, (list, tuple)) else _scalar(value) for value in values]


def _is_whole(value: Any) -> bool:
    """Whether a normal value is a number that is exact: an integer, or a decimal without fraction."""
    return isinstance(value, int) or (
        isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value()
    )


def _near(left: Any, right: Any, tolerance: float) -> bool:
    """Whether two numbers are equal within the tolerance."""
    one, other = _as_float(left), _as_float(right)
    if math.isinf(one) or math.isinf(other):
        return bool(left == right)  # beyond the floats numbers are exact
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance * _NEAR_ZERO)


def _as_float(number: Any) -> float:
    """The nearest float; an infinite one for numbers beyond the floats."""
    try:
        return float(number)
    except OverflowError:  # only integers raise it
        return math.inf if number > 0 else -math.inf


def codes(columns: Sequence[Sequence[Any]], tolerance: float) -> Mapping[Any, Any]:
    """A code for each number in columns of normal values; one without a code is its own."""
    if all(set(map(type, column)) <= _PLAIN for column in columns):
        return {}
    whole: set[Any] = set()
    other: set[Any] = set()  # one column may have 1 and the other 1.0
    for value in chain.from_iterable(columns):
        for part in value if isinstance(value, Nested) else (value,):
            if isinstance(part, _NUMBERS):
                (whole if _is_whole(part) else other).add(part)
    code: dict[Any, Any] = {}
    for group in _groups(sorted(whole | other), tolerance):
        if len(group) == 1 or other.isdisjoint(group):
            continue  # whole numbers are exact among themselves
        exact = []
        if not whole.isdisjoint(group):  # floats without a fraction count like whole numbers beside one
            exact = [one for one in group if _is_whole(one) or (isinstance(one, float) and one.is_integer())]
        if len(exact) > 1:
            code.update((number, _nearest(number, exact)) for number in group)
        else:
            code.update(dict.fromkeys(group, (exact or group)[0]))
    return code


def coded(column: Sequence[Any], code: Mapping[Any, Any]) -> Sequence[Any]:
    """The codes of a column's normal values."""
    if not code:
        return column
    return [
        Nested(code.get(part, part) for part in value) if isinstance(value, Nested) else code.get(value, value)
        for value in column
    ]


def _groups(numbers: list[Any], tolerance: float) -> Iterator[list[Any]]:
    """Sorted numbers, in groups that lie within the tolerance."""
    for near in _chains(numbers, tolerance):
        if _near(near[0], near[-1], tolerance):
            yield near
        else:  # a number that the database computed in two ways differs by far less than the tolerance
            for part in _chains(near, tolerance * _CLOSE):
                yield from [part] if _near(part[0], part[-1], tolerance) else ([number] for number in part)


def _chains(numbers: list[Any], tolerance: float) -> Iterator[list[Any]]:
    """Sorted numbers, divided where one is not near the next. So numbers of different chains are never near."""
    start, last = 0, math.nan
    for stop, number in enumerate(map(_as_float, numbers)):
        if stop and not math.isclose(last, number, rel_tol=tolerance, abs_tol=tolerance * _NEAR_ZERO):
            yield numbers[start:stop]
            start = stop
        last = number
    if numbers:
        yield numbers[start:]


def _nearest(number: Any, known: list[Any]) -> Any:
    """That of the known numbers, which are sorted, to which this one is nearest."""
    at = bisect_left(known, number)
    beside = known[max(at - 1, 0) : at + 1]
    return number if number in beside else min(beside, key=lambda one: abs(_as_float(one) - _as_float(number)))


def _scalar(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return _Mark.NAN
    if isinstance(value, Decimal) and value.is_nan():
        return _Mark.NAN
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001 - a date has no zone either
    return value


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        yield from (_Mark.START, *chain.from_iterable(map(_flat, value)), _Mark.END)
    else:
        yield _scalar(value)
