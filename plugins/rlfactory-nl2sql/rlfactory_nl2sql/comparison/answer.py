"""A gold query's answer on one database, with all orders and selections of rows that its ORDER BY and LIMIT allow.

The functions at the end compare a result's rows with it, columns by position. These rows hold codes (see `values`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate, combinations, groupby, islice
from typing import TYPE_CHECKING, Any

from rlfactory_nl2sql.comparison.values import coded, codes, normal, normal_column
from rlfactory_nl2sql.connection import Row, Rows

if TYPE_CHECKING:
    from rlfactory_nl2sql.checks.ordering import Untied


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

    @property
    def is_evidence(self) -> bool:
        """Whether a result that equals it says something: it has a value besides 0 and NULL."""
        return any(value is not None and value != 0 for tie in self.ties for row in tie.rows for value in row)

    def may_break_ties(self, rows: Rows) -> bool:
        """Whether a result that differs may only treat ties in another way: it has enough rows, with the certain ones.

        It may have all tied rows, as ``x = (SELECT max(x) …)`` gives them.
        """
        if not self.tied or len(rows.rows) < self.fewest:
            return False  # before the rows are counted: nearly all answers are not tied
        return not Counter(map(_loosely, self.certain)) - Counter(map(_loosely, rows.rows))

    @property
    def size(self) -> int:
        """The number of rows."""
        return sum(tie.take for tie in self.ties)


def answer_of(rows: Rows, *, ordered: bool, untied: Untied | None) -> Answer:
    """The answer of a gold query.

    Args:
        rows: the result of ``untied.sql``; if ``untied`` is None, and its ties are not known, that of the query itself.
        ordered: whether the gold query's outermost SELECT orders.
    """
    keys, limit, offset = (untied.keys, untied.limit, untied.offset) if untied else (0, None, 0)
    end = len(rows.rows) if limit is None else offset + limit
    plain = [row[: len(row) - keys] for row in rows.rows] if keys else rows.rows
    stops: Iterable[int] = range(1, len(plain) + 1) if ordered and not untied else [len(plain)]
    if keys:  # where each run of rows of equal rank ends
        stops = accumulate(len(list(run)) for _, run in groupby(rows.rows, lambda row: normal(row[-1])))
    ties, start = [], 0
    for stop in stops:
        take = min(stop, end) - max(start, offset)
        if take > 0:
            ties.append(Tie(tuple(plain[start:stop]), take))
        start = stop
    tied = keys > 0 and any(not tie.whole for tie in ties)
    certain = tuple(row for tie in ties if tie.whole for row in tie.rows) if tied else ()
    fewest = 0 if offset else sum(tie.take for tie in ties)  # all rows of the first ties may come before the OFFSET
    return Answer(rows.columns[: len(rows.columns) - keys], tuple(ties), tied, certain, fewest)


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
