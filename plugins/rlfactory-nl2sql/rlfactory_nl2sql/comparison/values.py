"""Equality of two values of results: by value, whatever their type in the database.

1, 1.0, Decimal("1.00") and True are one value; '1' is another. NULL equals NULL and NaN equals NaN. Floats and
fractional decimals are equal within a relative tolerance. An integer, or a decimal without fraction, is exact: it
equals no other whole number, also none that is a float. Midnight equals its date, as in SQL.

Nearness is not transitive, so values cannot simply be rounded and hashed. `clusters` gives each number a code such
that numbers with different codes are never equal; numbers with one code are equal except in `loose` clusters, in which
`same` has to decide pair by pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

_NUMBERS = (int, float, Decimal)
_PLAIN = frozenset({bool, int, str, bytes, type(None), datetime, time, timedelta, UUID})
_NEAR_ZERO = 1e-3  # share of the relative tolerance that is the absolute one, for sums that almost cancel out


class _Mark(Enum):
    """Marks for values that Python cannot compare."""

    NAN = "NaN"
    ARRAY = "["
    STRUCT = "{"
    END = "]"


@dataclass(frozen=True, slots=True)
class Nested:
    """An array, struct, map or JSON value as a flat sequence of values, with marks around each level."""

    parts: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Clusters:
    """Codes of numbers that may be equal within the tolerance. A number without a code is its own code."""

    code: dict[Any, Any]
    loose: frozenset[Any]  # codes of clusters in which some numbers are not equal


def normal_column(values: Sequence[Any]) -> Sequence[Any]:
    """Values of a column in a form that Python hashes and compares by value, tolerance aside."""
    kinds = set(map(type, values))
    if kinds <= _PLAIN:
        return values
    if kinds <= _PLAIN | {float}:
        return [value if value == value else _Mark.NAN for value in values]  # noqa: PLR0124 - only NaN differs from itself
    return [normal(value) for value in values]


def normal(value: Any) -> Any:
    """One value in the form of `normal_column`."""
    return Nested(_flat(value)) if isinstance(value, (list, tuple, dict, set, frozenset)) else _scalar(value)


def same(left: Any, right: Any, tolerance: float) -> bool:
    """Whether two normal values are equal."""
    if left == right:
        return True
    if isinstance(left, Nested) and isinstance(right, Nested):
        return len(left.parts) == len(right.parts) and all(
            same(one, other, tolerance) for one, other in zip(left.parts, right.parts, strict=True)
        )
    if not (isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS)):
        return False
    exact = is_whole(left) or is_whole(right)
    return not (exact and _is_integral(left) and _is_integral(right)) and near(left, right, tolerance)


def numbers_in(value: Any) -> Sequence[Any]:
    """The numbers of a normal value: itself, or those within it."""
    if isinstance(value, Nested):
        return [part for part in value.parts if isinstance(part, _NUMBERS)]
    return (value,) if isinstance(value, _NUMBERS) else ()


def is_whole(value: Any) -> bool:
    """Whether a normal value is a number that is exact: an integer, or a decimal without fraction."""
    return isinstance(value, int) or (
        isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value()
    )


def _is_integral(number: Any) -> bool:
    """Whether a number has no fraction; a float may have none too, but is no exact number."""
    return is_whole(number) or (isinstance(number, float) and number.is_integer())


def near(left: Any, right: Any, tolerance: float) -> bool:
    """Whether two numbers, whole or not, are equal within the tolerance."""
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


def clusters(columns: Sequence[Sequence[Any]], tolerance: float) -> Clusters:
    """Codes for all numbers in columns of normal values."""
    if all(set(map(type, column)) <= _PLAIN for column in columns):
        return Clusters({}, frozenset())
    whole: set[Any] = set()
    other: set[Any] = set()  # one column may have 1 and the other 1.0
    for column in columns:
        kinds = set(map(type, column))
        if kinds == {float}:
            other.update(column)
            continue
        nested = [part for value in column if isinstance(value, Nested) for part in value.parts]
        for kind, value in {*zip(map(type, column), column, strict=True), *zip(map(type, nested), nested, strict=True)}:
            if issubclass(kind, _NUMBERS):
                (whole if is_whole(value) else other).add(value)
    code: dict[Any, Any] = {}
    loose: set[Any] = set()
    for chain in _chains(sorted(whole | other), tolerance):
        if len(chain) == 1 or other.isdisjoint(chain):
            continue  # whole numbers are exact among themselves
        first = chain[0]
        code.update((number, first) for number in chain[1:])
        exact = not whole.isdisjoint(chain) and sum(map(_is_integral, chain)) > 1
        if exact or not near(first, chain[-1], tolerance):
            loose.add(first)
    return Clusters(code, frozenset(loose))


def coded(column: Sequence[Any], found: Clusters) -> Sequence[Any]:
    """The codes of a column's normal values."""
    code = found.code
    if not code:
        return column
    return [
        Nested(tuple(code.get(part, part) for part in value.parts))
        if isinstance(value, Nested)
        else code.get(value, value)
        for value in column
    ]


def has_loose(value: Any, found: Clusters) -> bool:
    """Whether a coded value has a number of a loose cluster."""
    if isinstance(value, Nested):
        return not found.loose.isdisjoint(value.parts)
    return value in found.loose


def _chains(numbers: list[Any], tolerance: float) -> Iterable[list[Any]]:
    """Sorted numbers, divided where one is not near the next. So numbers of different chains are never near."""
    start, last = 0, math.nan
    for stop, number in enumerate(map(_as_float, numbers)):
        if stop and not math.isclose(last, number, rel_tol=tolerance, abs_tol=tolerance * _NEAR_ZERO):
            yield numbers[start:stop]
            start = stop
        last = number
    if numbers:
        yield numbers[start:]


def _scalar(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return _Mark.NAN
    if isinstance(value, Decimal) and value.is_nan():
        return _Mark.NAN
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001 - a date has no zone either
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    try:
        hash(value)
    except TypeError:
        return type(value).__name__, repr(value)
    return value


def _flat(value: Any) -> tuple[Any, ...]:
    """Flatten a nested value, without recursion, because JSON may be nested deeper than Python's stack."""
    parts: list[Any] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (list, tuple)):
            parts.append(_Mark.ARRAY)
            waiting.append(_Mark.END)
            waiting.extend(reversed(item))
        elif isinstance(item, (dict, set, frozenset)):
            parts.append(_Mark.STRUCT)
            waiting.append(_Mark.END)
            for key in sorted(item, key=repr, reverse=True):
                waiting.extend((item[key], key) if isinstance(item, dict) else (key,))
        else:
            parts.append(_scalar(item))
    return tuple(parts)
