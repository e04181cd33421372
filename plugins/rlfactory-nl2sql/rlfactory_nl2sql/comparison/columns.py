"""Match the columns of a result with those of an answer when their order is free.

The answer's columns get one of the result's each, those with the fewest candidates first. After each the rows have to
be equal in the columns so far. The number of values read is bounded, and a result that exceeds it ends in an error and
never in a wrong answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rlfactory_core.errors import VerifierError

_MOST_VALUES = 3_000_000  # values read in one search; they take some seconds
_MOST_PASSES = 40  # over large tables, for which that would be too few

Numbers = tuple[int, ...]
"""A column: an integer for each row; rows with different ones are not equal."""


def match_in_any_order(gold: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]], ends: Sequence[int]) -> bool:
    """Whether the columns, in some order, hold the same rows in each of the parts that end at ``ends``.

    Raises:
        VerifierError: it could not be found out in bounded work.
    """
    numbers: dict[Any, int] = {}  # small integers, which compare fast
    mine, theirs = ([_numbered(column, numbers) for column in side] for side in (gold, found))
    parts = [slice(*each) for each in pairwise((0, *ends))]
    left = max(_MOST_VALUES, _MOST_PASSES * (ends[-1] if ends else 0) * 2 * len(theirs))
    copies = Counter(theirs)  # how many columns of the result hold the same
    by_values: dict[Any, list[Numbers]] = {}
    for kind in copies:
        by_values.setdefault(_values(kind, parts), []).append(kind)
    candidates = sorted(
        ((by_values.get(_values(column, parts), []), column) for column in mine), key=lambda pair: len(pair[0])
    )
    rows = (0,) * (ends[-1] if ends else 0)
    waiting: list[tuple[tuple[Numbers, ...], Numbers, Numbers]] = [((), rows, rows)]
    while waiting:
        chosen, one, other = waiting.pop()
        if len(chosen) == len(candidates):
            return True
        kinds, column = candidates[len(chosen)]
        for kind in kinds:
            if chosen.count(kind) == copies[kind]:
                continue
            left -= len(column)
            if left < 0:
                raise VerifierError(
                    f"The results could not be compared: their {len(mine)} columns of {len(column)} rows are too much "
                    "alike to find out which is which. Compare by position, with the semantics multiset."
                )
            pairs: dict[Any, int] = {}
            longer = _numbered(zip(one, column, strict=True), pairs), _numbered(zip(other, kind, strict=True), pairs)
            if _values(longer[0], parts) == _values(longer[1], parts):
                waiting.append(((*chosen, kind), *longer))
    return False


def _numbered(values: Any, numbers: dict[Any, int]) -> Numbers:
    return tuple([numbers.setdefault(value, len(numbers)) for value in values])


def _values(column: Numbers, parts: Sequence[slice]) -> tuple[Any, ...]:
    """What a column holds in each part, whatever the order of rows."""
    return tuple(tuple(sorted(column[part])) for part in parts)
