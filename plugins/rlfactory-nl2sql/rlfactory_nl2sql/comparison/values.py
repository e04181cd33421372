"""Equality of two values of results: by value, whatever their type in the database.

1, 1.0, Decimal("1.00") and True are one value; '1' is another. NULL equals NULL and NaN equals NaN. Numbers with a
fraction are equal within a relative tolerance; whole numbers equal no other whole number. Midnight equals its date.

Nearness is not transitive, so numbers cannot simply be rounded and hashed. `representatives` gives one number for all
that lie together within the tolerance. Where numbers are so dense that each is near to many, only the closest count as
equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

_PLAIN = frozenset({int, str, bytes, type(None)})
_CLOSE = 1e-3  # share of the tolerance within which numbers of a dense column count as equal
_NEAR_ZERO = 1e-3  # share of the relative tolerance that is the absolute one, for sums that almost cancel out
_EXACT = 2.0**53  # the greatest number of which a float tells the whole ones apart
_LARGEST = 1e300  # a greater integer is near to none
_NAN = ("NaN",)


def plain_columns(columns: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """Columns with values that Python hashes and compares by value, tolerance aside."""
    return [column if set(map(type, column)) <= _PLAIN else list(map(_plain, column)) for column in columns]


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, (float, Decimal)):
        if math.isnan(value):
            return _NAN
        is_whole = not math.isinf(value) and value == int(value)
        return int(value) if is_whole and (abs(float(value)) <= _EXACT or isinstance(value, Decimal)) else float(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001 - a date has no zone either
    return value


def representatives(columns: Iterable[Sequence[Any]], tolerance: float) -> Mapping[float, float]:
    """For each number with a fraction in plain columns, the number that it counts as."""
    numbers: set[float] = {part for column in columns for value in column for part in _numbers(value)}
    found: dict[float, float] = {}
    if not any(isinstance(number, float) for number in numbers):
        return found
    for group in _groups(sorted(numbers), tolerance):
        whole = [number for number in group if isinstance(number, int)] or group[:1]
        found |= {
            one: min(whole, key=lambda other, one=one: abs(other - one)) for one in group if isinstance(one, float)
        }
    return found


def represented(column: Sequence[Any], numbers: Mapping[float, float]) -> Sequence[Any]:
    """The column with those numbers in place of its own."""

    def one(value: Any) -> Any:
        return tuple(map(one, value)) if isinstance(value, tuple) else numbers.get(value, value)

    return list(map(one, column)) if numbers else column


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, tuple):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, float) or (isinstance(value, int) and abs(value) < _LARGEST):
        yield value


def _groups(numbers: Sequence[float], tolerance: float) -> Iterator[Sequence[float]]:
    """Sorted numbers, in groups that lie within the tolerance."""
    for near in _chains(numbers, tolerance):
        if _near(near[0], near[-1], tolerance):
            yield near
        else:  # a number that the database computed in two ways differs by far less than the tolerance
            for part in _chains(near, tolerance * _CLOSE):
                yield from [part] if _near(part[0], part[-1], tolerance) else ([number] for number in part)


def _chains(numbers: Sequence[float], tolerance: float) -> Iterator[Sequence[float]]:
    """Sorted numbers, divided where one is not near the next. So numbers of different chains are never near."""
    start = 0
    for stop in range(1, len(numbers) + 1):
        if stop == len(numbers) or not _near(numbers[stop - 1], numbers[stop], tolerance):
            yield numbers[start:stop]
            start = stop


def _near(one: float, other: float, tolerance: float) -> bool:
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance * _NEAR_ZERO)
