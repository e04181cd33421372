"""Compare the rows of a result with those of an answer, columns by position. Rows hold codes (see `values`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, islice
from typing import Any

from rlfactory_nl2sql.comparison.answer import Answer, Tie
from rlfactory_nl2sql.comparison.values import coded, codes, normal_column
from rlfactory_nl2sql.connection import Row, Rows


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
