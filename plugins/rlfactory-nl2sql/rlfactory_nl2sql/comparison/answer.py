"""A gold query's answer on one database, with all orders and selections of rows that its ORDER BY and LIMIT allow.

The functions at the end compare a result's rows with it, columns by position. These rows hold codes (see `values`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations, islice
from typing import Any

from rlfactory_nl2sql.comparison.values import coded, codes, normal_column
from rlfactory_nl2sql.connection import Row, Rows


@dataclass(frozen=True, slots=True)
class Tie:
    """Rows that the query's ORDER BY does not distinguish. Any ``take`` of them in any order are right."""

    rows: Sequence[Row]
    take: int  # how many of them are in the answer; less than len(rows) if LIMIT or OFFSET cuts the tie

    @property
    def whole(self) -> bool:
        return self.take == len(self.rows)


@dataclass(frozen=True, slots=True)
class Answer:
    """The ties in order. Without ORDER BY there is one tie; with a total order each holds one row."""

    columns: tuple[str, ...]
    ties: tuple[Tie, ...]
    tied: bool = False  # whether another right answer exists, because a LIMIT cuts rows that an ORDER BY leaves tied
    certain: tuple[Row, ...] = ()  # if tied: rows that each right answer has
    fewest: int = 0  # if tied: the fewest rows of a right answer
    repeated: bool = False  # whether a LIMIT leaves out a row that is like one in the answer, and perhaps tied with it

    @property
    def is_evidence(self) -> bool:
        """Whether a result that equals it says something: it has a value besides 0 and NULL."""
        return any(value is not None and value != 0 for tie in self.ties for row in tie.rows for value in row)

    def may_break_ties(self, rows: Rows) -> bool:
        """Whether a result that differs may only treat ties in another way: it has enough rows, with the certain ones.

        It may have all tied rows, as ``x = (SELECT max(x) …)`` gives them.
        """
        if not (self.tied or self.repeated) or len(rows.rows) < self.fewest:
            return False  # before the rows are counted: nearly all answers are not tied
        given = Counter(map(_loosely, rows.rows))
        if self.tied:
            return not Counter(map(_loosely, self.certain)) - given
        return given.keys() == {_loosely(row) for tie in self.ties for row in tie.rows}

    @property
    def whole(self) -> bool:
        """Whether no tie is cut."""
        return all(tie.whole for tie in self.ties)

    @property
    def size(self) -> int:
        """The number of rows."""
        return sum(tie.take for tie in self.ties)


def answer_of(
    readings: Sequence[Rows], limit: int | None = None, offset: int = 0, *, ordered: bool, folded: bool = False
) -> Answer:
    """The answer of a gold query.

    Args:
        readings: rows of which it gives ``limit`` after ``offset``; or these with ties broken in two ways.
        ordered: whether the gold query's outermost SELECT orders.
        folded: whether the database may order texts without regard to letter case.
    """
    rows, others = readings[0].rows, readings[min(len(readings), 2) - 1].rows
    end = len(rows) if limit is None else offset + limit
    ties, start = [], 0
    for stop in [*_ends(rows, others, folded=folded), len(rows)] if ordered else [len(rows)]:
        take = min(stop, end) - max(start, offset)
        if take > 0:
            ties.append(Tie(rows[start:stop], take))
        start = stop
    begins, ends = (ordered and 0 < at < len(rows) and _key(rows[at - 1]) == _key(rows[at]) for at in (offset, end))
    tied = ordered and (begins or any(not tie.whole for tie in ties))
    certain = tuple(row for tie in ties if tie.whole for row in tie.rows) if tied and not begins else ()
    fewest = 0 if offset else sum(tie.take for tie in ties)  # all rows of the first ties may come before the OFFSET
    return Answer(readings[0].columns, tuple(ties), tied, certain, fewest, repeated=ends)


def _ends(rows: Sequence[Row], others: Sequence[Row], *, folded: bool) -> Iterator[int]:
    """Where each tie ends: what comes before is the same in both orders.

    If the database takes rows that differ in no more than letter case for equal, it does not order them, so they count
    as tied.
    """
    keys, apart = list(map(_key, rows)), Counter[str]()  # rows that came in one order only
    for place, (key, other) in enumerate(zip(keys, map(_key, others), strict=False), 1):
        for one, change in ((key, 1), (other, -1)):
            apart[one] += change
            if not apart[one]:
                del apart[one]
        following = keys[place] if place < len(keys) else ""
        if not apart and not (folded and key != following and key.lower() == following.lower()):
            yield place


def same_rows(readings: Sequence[Rows]) -> bool:
    """Whether results have the same rows, in whatever order."""
    first, *others = (Counter(map(_key, one.rows)) for one in readings)
    return all(one == first for one in others)


def _key(row: Row) -> str:
    """A row without the last digits of its numbers, which hang on the order in which the database adds."""
    return repr([f"{value:.12g}" if isinstance(value, float) else value for value in row])


def _loosely(row: Row) -> tuple[str, ...]:
    """A row without its order of columns and the last digits of its numbers."""
    return tuple(sorted(f"{value:.6g}" if isinstance(value, int | float | Decimal) else repr(value) for value in row))


def coded_rows(answer: Answer, rows: Rows, tolerance: float, *, together: bool) -> tuple[list[Tie], list[Row]]:
    """The rows of both with codes for values, so that two rows are equal if their codes are.

    ``together``: a value has the same code in all columns; otherwise only in those of the same place.
    """
    wanted = [row for tie in answer.ties for row in tie.rows]
    sides = [
        [normal_column(column) for column in zip(*side, strict=True)] or [()] * len(answer.columns)
        for side in (wanted, rows.rows)
    ]
    pairs = list(zip(*sides, strict=True))
    everything = [column for side in sides for column in side]
    places = [codes(everything, tolerance)] * len(pairs) if together else [codes(pair, tolerance) for pair in pairs]
    gold, found = (
        list(zip(*map(coded, side, places), strict=True)) or [()] * number
        for side, number in zip(sides, (len(wanted), len(rows.rows)), strict=True)
    )
    return with_rows(answer.ties, gold), found


def with_rows(ties: Sequence[Tie], rows: Sequence[Any]) -> list[Tie]:
    """The same ties with other rows, or with anything that stands for them."""
    left = iter(rows)
    return [Tie(tuple(islice(left, len(tie.rows))), tie.take) for tie in ties]


def first_difference(ties: Sequence[Tie], found: Sequence[Any]) -> int | None:
    """The number of the first tie whose place in the result holds other rows; None if there is none.

    The result has as many rows as the answer.
    """
    left = iter(found)
    return next((number for number, tie in enumerate(ties) if not _holds(tie, list(islice(left, tie.take)))), None)


def _holds(tie: Tie, found: Sequence[Row]) -> bool:
    if len(tie.rows) == 1:
        return tie.rows[0] == found[0]
    given, right = Counter(found), Counter(tie.rows)
    return given == right if tie.whole else given <= right


def same_set(ties: Sequence[Tie], found: Sequence[Row]) -> bool:
    """Whether the result's distinct rows are those of a right answer, in any order."""
    rows = set(found)
    certain = {row for tie in ties if tie.whole for row in tie.rows}
    cut = [tie for tie in ties if not tie.whole]  # at most two, one by OFFSET and one by LIMIT
    if not certain <= rows or any(sum(row in rows for row in tie.rows) < tie.take for tie in cut):
        return False
    # Each further row needs a place in a tie that has it. So what only some ties have, fits into what these give.
    parts = [some for size in range(len(cut) + 1) for some in combinations(range(len(cut)), size)]
    return all(
        len(rows - certain - {row for place, tie in enumerate(cut) if place not in some for row in tie.rows})
        <= sum(cut[place].take for place in some)
        for some in parts
    )
