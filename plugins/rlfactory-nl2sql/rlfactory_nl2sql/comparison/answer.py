"""A gold query's answer on one database, with all orders and selections of rows that its ORDER BY and LIMIT allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from rlfactory_nl2sql.comparison.values import normal
from rlfactory_nl2sql.connection import Row, Rows

if TYPE_CHECKING:
    from rlfactory_nl2sql.checks.ties import Untied


@dataclass(frozen=True, slots=True)
class Tie:
    """Rows that the query's ORDER BY does not distinguish. Any ``take`` of them in any order are right."""

    rows: tuple[Row, ...]
    take: int  # how many of them are in the answer; less than len(rows) if LIMIT or OFFSET cuts the tie


@dataclass(frozen=True, slots=True)
class Answer:
    """The ties in order. Without ORDER BY there is one tie; with a total order each holds one row."""

    columns: tuple[str, ...]
    ties: tuple[Tie, ...]

    @property
    def size(self) -> int:
        """The number of rows."""
        return sum(tie.take for tie in self.ties)


Order = Literal["auto", "always", "never"]
"""Whether the order of rows counts: if the gold query orders, always, or never."""


def answer_of(rows: Rows, *, ordered: bool, untied: Untied | None, order: Order = "auto") -> Answer:
    """The answer of a gold query.

    Args:
        rows: the result of ``untied.sql``, or of the gold query itself if ``untied`` is None. ordered: whether the gold
        query's outermost SELECT orders. untied: the gold query without its LIMIT. Its rows are sorted and have their
        rank as last column. None: the ties are not known, so each row of an ordered query has its place. order:
        "always": each row has its place; "never": no row has, and only LIMIT makes a choice among rows.
    """
    keys, limit, offset = (untied.keys, untied.limit, untied.offset) if untied else (0, None, 0)
    end = len(rows.rows) if limit is None else offset + limit
    plain = [row[: len(row) - keys] for row in rows.rows] if keys else rows.rows
    columns = rows.columns[: len(rows.columns) - keys]
    if order == "always":
        return Answer(columns, tuple(Tie((row,), 1) for row in plain[offset:end]))
    if keys:
        stops = list(_ends(rows.rows, keys))
    elif ordered and not untied and order == "auto":
        stops = list(range(1, len(plain) + 1))
    else:
        stops = [len(plain)]
    ties, start = [], 0
    for stop in stops:
        take = min(stop, end) - max(start, offset)
        if take > 0:
            ties.append(Tie(tuple(plain[start:stop]), take))
        start = stop
    return Answer(columns, _together(ties) if order == "never" else tuple(ties))


def _ends(rows: Sequence[Row], keys: int) -> Iterator[int]:
    """Where each run of rows with equal sort keys ends."""
    end = 0
    for _, run in groupby(rows, lambda row: [normal(value) for value in row[len(row) - keys :]]):
        end += sum(1 for _ in run)
        yield end


def _together(ties: Sequence[Tie]) -> tuple[Tie, ...]:
    """All uncut ties as one tie, and the ties that LIMIT or OFFSET cuts."""
    whole = tuple(row for tie in ties if tie.take == len(tie.rows) for row in tie.rows)
    cut = tuple(tie for tie in ties if tie.take < len(tie.rows))
    return (Tie(whole, len(whole)), *cut) if whole else cut
