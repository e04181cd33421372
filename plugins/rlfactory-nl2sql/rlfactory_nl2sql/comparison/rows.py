"""Compare the rows of a result with those of an answer, columns by position.

Rows are counted by their codes (`values`), which decides nearly all cases. Only rows with numbers in loose clusters are
matched one by one, both sides sorted by these numbers. Where several such columns, or whole numbers among others, lie
within the tolerance of one another, another pairing may exist that is not found; then the rows count as different.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

from rlfactory_core.errors import VerifierError
from rlfactory_nl2sql.comparison.answer import Tie
from rlfactory_nl2sql.comparison.values import clusters, coded, has_loose, normal_column, numbers_in, same
from rlfactory_nl2sql.connection import Row

_MOST_PAIRS = 1_000_000  # of rows, as sets: about a second
_UNDECIDED = (
    "The results could not be compared: too many of their rows are within the tolerance of one another. Compare with "
    "a smaller tolerance."
)


def numbered(ties: Iterable[Tie[Row]]) -> tuple[Tie[int], ...]:
    """The ties with the numbers of their rows, counted through all of them."""
    found: list[Tie[int]] = []
    start = 0
    for tie in ties:
        found.append(Tie(range(start, start + len(tie.rows)), tie.take))
        start += len(tie.rows)
    return tuple(found)


def columns_of(rows: Sequence[Row], number: int) -> list[Sequence[Any]]:
    """The normal values of rows, column by column; ``number`` columns."""
    return [normal_column(column) for column in zip(*rows, strict=True)] or [()] * number


class Sides:
    """The rows of all ties of an answer and the rows of a result, ready to be compared column for column."""

    def __init__(self, gold: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]], tolerance: float) -> None:
        """``gold`` and ``found``: equally many columns of normal values."""
        self._tolerance = tolerance
        self._values = gold, found
        self._clusters = [clusters(pair, tolerance) for pair in zip(gold, found, strict=True)]
        self.gold, self.found = (
            list(zip(*(coded(*pair) for pair in zip(side, self._clusters, strict=True)), strict=True))
            for side in self._values
        )

    def in_order(self, ties: Sequence[Tie[int]]) -> bool:
        """Whether the result's rows are those of the ties in order, in any order within each tie.

        Raises:
            VerifierError: it could not be found out.
        """
        position = 0
        for tie in ties:
            if not self.fit([tie], range(position, position + tie.take)):
                return False
            position += tie.take
        return position == len(self.found)

    def fit(self, ties: Sequence[Tie[int]], found: Sequence[int]) -> bool:
        """Whether these rows of the result are those of the ties, in any order.

        Raises:
            VerifierError: it could not be found out.
        """
        if len(found) != sum(tie.take for tie in ties):
            return False
        if len(ties) == len(found) == 1 and ties[0].whole:
            return self._equal(ties[0].rows[0], found[0])
        whole, cut = self._split(ties)
        need = Counter(self.found[index] for index in found)
        given = Counter(row for tie in whole for row in self._gold_rows(tie))
        choice = [Counter(self._gold_rows(tie)) for tie in cut]
        if given - need or not _supplied(need - given, choice, [tie.take for tie in cut]):
            return False
        if not any(map(self._loose_columns, need)):
            return True
        if cut and len(ties) > 1:
            raise VerifierError(_UNDECIDED)
        rows = [index for tie in ties for index in tie.rows]
        return all(self._paired(*group) for group in self._loose_groups(rows, found))

    def fit_as_set(self, ties: Sequence[Tie[int]]) -> bool:
        """Whether the result's distinct rows are those of the ties.

        Raises:
            VerifierError: it could not be found out.
        """
        whole, cut = self._split(ties)
        need = set(self.found)
        given = {row for tie in whole for row in self._gold_rows(tie)}
        choice = [Counter(row for row in self._gold_rows(tie) if row in need) for tie in cut]
        if given - need or any(sum(rows.values()) < tie.take for rows, tie in zip(choice, cut, strict=True)):
            return False
        if not _supplied(Counter(need - given), [Counter(set(rows)) for rows in choice], [tie.take for tie in cut]):
            return False
        if not any(map(self._loose_columns, need)):
            return True
        if cut:
            raise VerifierError(_UNDECIDED)
        groups = self._loose_groups(range(len(self.gold)), range(len(self.found)))
        return all(self._equal_as_sets(*group) for group in groups)

    def _gold_rows(self, tie: Tie[int]) -> list[Row]:
        return [self.gold[row] for row in tie.rows]

    @staticmethod
    def _split(ties: Sequence[Tie[int]]) -> tuple[list[Tie[int]], list[Tie[int]]]:
        return [tie for tie in ties if tie.whole], [tie for tie in ties if not tie.whole]

    @cached_property
    def _loose(self) -> list[int]:
        return [number for number, column in enumerate(self._clusters) if column.loose]

    def _loose_columns(self, row: Row) -> list[int]:
        """The columns of a coded row whose codes do not decide equality."""
        return [number for number in self._loose if has_loose(row[number], self._clusters[number])]

    def _equal(self, gold: int, found: int) -> bool:
        return self.gold[gold] == self.found[found] and self._near(gold, found, self._loose_columns(self.gold[gold]))

    def _near(self, gold: int, found: int, columns: Iterable[int]) -> bool:
        left, right = self._values
        return all(same(left[column][gold], right[column][found], self._tolerance) for column in columns)

    def _loose_groups(
        self, gold: Iterable[int], found: Iterable[int]
    ) -> Iterator[tuple[list[int], list[int], list[int]]]:
        """Rows of both sides with the same codes, and the columns whose codes do not decide equality."""
        groups: defaultdict[Row, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for index in gold:
            groups[self.gold[index]][0].append(index)
        for index in found:
            groups[self.found[index]][1].append(index)
        for row, (left, right) in groups.items():
            if right and (columns := self._loose_columns(row)):
                yield left, right, columns

    def _paired(self, gold: list[int], found: list[int], columns: list[int]) -> bool:
        """Whether each row of the result equals a different row of the answer, both sorted by the numbers in columns.

        The numbers near a number grow with it. So with one number a row, sorted rows are paired if any order is.
        """
        values, others = self._values
        left = iter(sorted(gold, key=lambda row: _numbers(values, row, columns)))
        return all(
            any(self._near(row, one, columns) for row in left)
            for one in sorted(found, key=lambda row: _numbers(others, row, columns))
        )

    def _equal_as_sets(self, gold: list[int], found: list[int], columns: list[int]) -> bool:
        if len(gold) * len(found) > _MOST_PAIRS:
            raise VerifierError(_UNDECIDED)
        return all(any(self._near(row, one, columns) for row in gold) for one in found) and all(
            any(self._near(row, one, columns) for one in found) for row in gold
        )


def _numbers(side: Sequence[Sequence[Any]], row: int, columns: Iterable[int]) -> list[Any]:
    return [number for column in columns for number in numbers_in(side[column][row])]


def _supplied(need: Counter[Row], choice: Sequence[Counter[Row]], takes: Sequence[int]) -> bool:
    """Whether ``need`` rows can be taken from the choices, from each at most as many as it gives.

    By max-flow and min-cut: a subset of the choices must give what the others cannot. An answer cuts at most two
    ties, one with OFFSET and one with LIMIT, so the subsets are few.
    """
    numbers = range(len(choice))
    return all(
        sum(max(0, count - sum(choice[n][row] for n in numbers if n not in subset)) for row, count in need.items())
        <= sum(takes[n] for n in subset)
        for size in range(len(choice) + 1)
        for subset in combinations(numbers, size)
    )
