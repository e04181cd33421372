"""Match the columns of a result with those of an answer when their order is free.

The answer's columns get one of the result's each, those with the fewest candidates first. After each the rows have to
be equal in the columns so far. The number of values read is bounded, and a result that exceeds it ends in an error and
never in a wrong answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from rlfactory_core.errors import VerifierError
from rlfactory_nl2sql.comparison.answer import Tie, first_difference, with_rows
from rlfactory_nl2sql.connection import Row

_MOST_VALUES = 3_000_000  # values read in one search; they take some seconds
_MOST_PASSES = 40  # over large tables, for which that would be too few

Numbers = Sequence[int]
"""An integer for each row: rows with different ones are not equal."""


class ColumnSearch:
    """The search for the columns of a result that correspond to an answer's."""

    def __init__(self, ties: Sequence[Tie], found: Sequence[Row]) -> None:
        """The rows hold values that are equal if they are the same; there are some, as many as the answer has."""
        self._ties = ties
        numbers: dict[Any, int] = {}  # small integers, which compare fast
        self._gold, self._found = (
            [[numbers.setdefault(value, len(numbers)) for value in column] for column in zip(*rows, strict=True)]
            for rows in (list(chain.from_iterable(tie.rows for tie in ties)), found)
        )
        self._left = max(_MOST_VALUES, _MOST_PASSES * len(found) * 2 * len(self._found))
        self._copies = Counter(map(tuple, self._found))  # of the columns of the result, how many hold the same
        if any(not tie.whole for tie in ties):
            self._candidates = [[kind for kind in self._copies if self._fit(column, kind)] for column in self._gold]
        else:
            kinds: dict[Any, list[tuple[int, ...]]] = {}
            for kind in self._copies:
                kinds.setdefault(self._values(kind), []).append(kind)
            self._candidates = [kinds.get(self._values(column), []) for column in self._gold]

    def succeeds(self) -> bool:
        """Whether the result is the answer, with its columns in some order.

        Raises:
            VerifierError: it could not be found out in bounded work.
        """
        order = sorted(range(len(self._gold)), key=lambda column: len(self._candidates[column]))
        rows = [0] * sum(len(tie.rows) for tie in self._ties), [0] * sum(tie.take for tie in self._ties)
        waiting: list[tuple[tuple[tuple[int, ...], ...], Numbers, Numbers]] = [((), *rows)]
        while waiting:
            chosen, gold, found = waiting.pop()
            if len(chosen) == len(order):
                return True
            column, used = order[len(chosen)], Counter(chosen)
            for kind in self._candidates[column]:
                if used[kind] < self._copies[kind]:
                    numbers: dict[tuple[int, int], int] = {}
                    mine, theirs = (
                        [numbers.setdefault(pair, len(numbers)) for pair in zip(*side, strict=True)]
                        for side in ((gold, self._gold[column]), (found, kind))
                    )
                    if self._fit(mine, theirs):
                        waiting.append(((*chosen, kind), mine, theirs))
        return False

    def _values(self, column: Numbers) -> tuple[Any, ...]:
        """What a column holds in each tie, whatever the order of rows."""
        return tuple(tuple(sorted(tie.rows)) for tie in with_rows(self._ties, column))

    def _fit(self, gold: Numbers, found: Numbers) -> bool:
        self._left -= len(gold)
        if self._left < 0:
            raise VerifierError(
                f"The results could not be compared: their {len(self._gold)} columns of {len(gold)} rows are too much "
                "alike to find out which is which. Compare by position, with the semantics multiset."
            )
        return first_difference(with_rows(self._ties, gold), found) is None
