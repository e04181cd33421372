"""Describe differences between a result and an answer, for a person who debugs a reward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from reprlib import Repr
from typing import Any

from rlfactory_nl2sql.connection import Row

_ROWS = 3  # as examples

Coded = tuple[Hashable, Row]
"""A row, after what it is compared by."""


def number_of(count: int, noun: str) -> str:
    """Such as "1 row" and "2 rows"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def show(row: Row) -> str:
    """A row as people write it, its values cut at about 80 characters."""
    return f"({', '.join(map(_show_value, row))})"


def differences(required: Iterable[Coded], possible: Iterable[Coded], given: Iterable[Coded]) -> str:
    """Which rows are missing and which are too many.

    Args:
        required: rows that have to be there.
        possible: further rows of which some have to be there.
        given: the rows of the result.
    """
    required, given = list(required), list(given)
    missing = _surplus(required, given)
    extra = _surplus(given, [*required, *possible])
    parts = [f"{name}: {rows}" for name, rows in (("missing", missing), ("too many", extra)) if rows]
    return "; ".join(parts) or "each row alone could be right, but not all of them together"


def _surplus(rows: Iterable[Coded], others: Iterable[Coded]) -> str:
    """The rows that the others do not have as often."""
    left = Counter(code for code, _ in others)
    surplus = []
    for code, row in rows:
        left[code] -= 1
        if left[code] < 0:
            surplus.append(row)
    more = f" and {len(surplus) - _ROWS} more" if len(surplus) > _ROWS else ""
    return ", ".join(map(show, surplus[:_ROWS])) + more


def _show_value(value: Any) -> str:
    if value is None:
        return "NULL"
    short = Repr()
    short.maxstring = short.maxother = short.maxlong = 80
    return short.repr(value)
