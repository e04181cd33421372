"""Compare the rows of a result with those of an answer, columns by position.

Rows are counted by their codes (`values`), which decides nearly all cases. Only rows with numbers in loose clusters are
matched one by one: after sorting, and if that does not decide, by a bipartite matching with bounded work.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

from rlfactory_core.errors import VerifierError
from rlfactory_nl2sql.comparison.answer import Tie
from rlfactory_nl2sql.comparison.values import (
    as_float,
    clusters,
    coded,
    has_loose,
    is_whole,
    normal_column,
    numbers_in,
    same,
)
from rlfactory_nl2sql.connection import Row

_MOST_STEPS = 1_000_000  # comparisons of pairs of rows: about a second
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
        self.steps = 0  # pairs of rows compared so far, because their codes did not decide
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
        return all(self._match(*group) for group in self._loose_groups(rows, found))

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
        return all(
            all(self._neighbours(gold, found, columns)) and all(self._neighbours(found, gold, columns, swapped=True))
            for gold, found, columns in self._loose_groups(range(len(self.gold)), range(len(self.found)))
        )

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

    def _match(self, gold: list[int], found: list[int], columns: list[int]) -> bool:
        """Whether each row of the result can be matched with a different row of the answer."""
        left, right = (self._numbers(side, rows, columns) for side, rows in enumerate((gold, found)))
        gold, found = sorted(gold, key=left.__getitem__), sorted(found, key=right.__getitem__)
        if len(gold) == len(found):
            if all(self._near(*pair, columns) for pair in zip(gold, found, strict=True)):
                return True
            # The numbers near a number grow with it. So with one number a row, sorted pairs are as good as any. Exact
            # numbers are the exception.
            if len(left[gold[0]]) == 1 and not any(
                is_whole(numbers[0]) for side in (left, right) for numbers in side.values()
            ):
                return False
        return self._each_has_one(list(self._neighbours(found, gold, columns, swapped=True)))

    def _numbers(self, side: int, rows: list[int], columns: list[int]) -> dict[int, tuple[Any, ...]]:
        """The numbers of each of these rows of a side in these columns."""
        values = self._values[side]
        return {row: tuple(number for column in columns for number in numbers_in(values[column][row])) for row in rows}

    def _neighbours(
        self, rows: list[int], others: list[int], columns: list[int], *, swapped: bool = False
    ) -> Iterator[list[int]]:
        """For each of the rows the others that equal it; rows of the answer first, of the result first if swapped."""
        mine, theirs = (
            self._numbers(side, side_rows, columns) for side, side_rows in ((swapped, rows), (not swapped, others))
        )
        others = sorted(others, key=theirs.__getitem__)
        first = [as_float(theirs[row][0]) for row in others]
        for row in rows:
            number = as_float(mine[row][0])
            reach = 2 * self._tolerance * (abs(number) + 1) if math.isfinite(number) else 0.0
            window = others[bisect_left(first, number - reach) : bisect_right(first, number + reach)]
            self._spend(len(window))
            yield [other for other in window if self._near(*((other, row) if swapped else (row, other)), columns)]

    def _each_has_one(self, choices: list[list[int]]) -> bool:
        """Whether each can have one of its choices that no other has, by Kuhn's bipartite matching, breadth first."""
        owner: dict[int, int] = {}
        held: dict[int, int] = {}
        for start in range(len(choices)):
            reached: dict[int, int] = {}
            queue = deque([start])
            free = None
            while queue and free is None:
                one = queue.popleft()
                self._spend(len(choices[one]))
                for choice in choices[one]:
                    if choice not in reached:
                        reached[choice] = one
                        if choice not in owner:
                            free = choice
                            break
                        queue.append(owner[choice])
            if free is None:
                return False
            while free is not None:
                one = reached[free]
                owner[free] = one
                held[one], free = free, held.get(one)
        return True

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > _MOST_STEPS:
            raise VerifierError(_UNDECIDED)


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
