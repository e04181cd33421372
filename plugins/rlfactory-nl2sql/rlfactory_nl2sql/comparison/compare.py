"""Compare a result with a gold query's answer, with one of several definitions of equality, and say how they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, Literal

from rlfactory_nl2sql.checks.ordering import Cut, is_ordered
from rlfactory_nl2sql.comparison.columns import match_in_any_order
from rlfactory_nl2sql.comparison.values import plain_columns, representatives, represented
from rlfactory_nl2sql.connection import Row, Rows

Semantics = Literal["multiset", "set", "test-suite"]
_ROWS = 3  # as examples
CELL = 60  # most characters shown of a value
Coded = tuple[Any, Row]
"""What a row is compared by, and the row."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The definition of equality for a result and a gold query's answer. Column names never count.

    ``semantics``:

    - ``multiset``: columns by position; each row as often as in the answer, in order where the gold query orders.
    - ``set``: columns by position; the same distinct rows, in any order (BIRD's execution accuracy).
    - ``test-suite``: like ``multiset`` with the columns in any order (Zhong et al. 2020, arXiv 2010.02840).

    In all of them the number of columns counts for empty results too, and values are equal as in `values`.
    """

    semantics: Semantics = "multiset"
    tolerance: float = 1e-9  # relative, of numbers with a fraction; 0: none, and 0.1 is the most


@dataclass(frozen=True, slots=True)
class Answer:
    """A gold query's rows on one database, and which of them may change places."""

    result: Rows
    ends: tuple[int, ...]  # where each tie of its ORDER BY ends; without ORDER BY, all rows are one
    tied: bool = False  # whether a LIMIT chooses among tied rows, so that other answers are as right
    repeated: bool = False  # whether it leaves out a row that is like one in the answer, and perhaps tied with it

    def may_repeat(self, rows: Rows) -> bool:
        """Whether a result that differs may only have more tied rows, as ``x = (SELECT max(x) …)`` gives them."""
        distinct = ({tuple(sorted(map(_loosely, row))) for row in side.rows} for side in (self.result, rows))
        return self.repeated and len(set(map(frozenset, distinct))) == 1

    @property
    def is_evidence(self) -> bool:
        """Whether a result that equals it says something: it has a value besides 0 and NULL, whatever ties do."""
        return not self.tied and any(value is not None and value != 0 for row in self.result.rows for value in row)


def answer_of(own: Rows, readings: Sequence[Rows] = (), *, ordered: bool, folded: bool = False) -> Answer:
    """The answer with these rows, of which no LIMIT cuts a tie.

    Args:
        readings: the same rows, with ties broken in two ways; none if nothing in the query chooses among ties.
        ordered: whether the gold query's outermost SELECT orders.
        folded: whether the database may order texts without regard to letter case.
    """
    if not ordered:
        return Answer(own, (len(own.rows),) if own.rows else ())
    first, *others = readings or (own,)
    keys = list(map(row_key, first.rows))
    apart = Counter[str]()  # rows that came in one order only
    ends = []
    for place, (key, other) in enumerate(zip(keys, map(row_key, (others or [first])[0].rows), strict=False), 1):
        for one, change in ((key, 1), (other, -1)):
            apart[one] += change
            if not apart[one]:
                del apart[one]
        if not apart and not (folded and alike(key, keys[place] if place < len(keys) else "")):
            ends.append(place)
    return Answer(own, tuple(ends))


def is_cut(own: Rows, readings: Sequence[Rows], cut: Cut, *, folded: bool) -> bool:
    """Whether something in a query chooses among tied rows.

    Args:
        own: the query's rows.
        readings: those of ``cut.wider``, with ties broken in several ways.
        folded: as in `answer_of`.
    """
    keys = [list(map(row_key, one.rows)) for one in readings]
    results = [Counter(map(row_key, own.rows)), *(Counter(cut.part(each)) for each in keys)]
    if _differ(results) or any(_differ([Counter(each[:at]) for each in keys]) for at in cut.edges if at):
        return True
    pairs = (_around(readings, cut, at) for at in cut.edges if folded)
    return any(len(pair) == 2 and alike(*pair) for pair in pairs)


def looks_cut(readings: Sequence[Rows], cut: Cut, at: int) -> bool:
    """Whether the rows before and after a place look the same, so that they may be tied; otherwise as `is_cut`."""
    pair = _around(readings, cut, at)
    return len(pair) == 2 and pair[0] == pair[1]


def _around(readings: Sequence[Rows], cut: Cut, at: int) -> list[str]:
    return list(map(row_key, readings[0].rows[at - 1 : at + 1])) if at and readings and is_ordered(cut.query) else []


def _differ(some: Sequence[Counter[str]]) -> bool:
    return any(one != some[0] for one in some)


def alike(one: str, other: str) -> bool:
    """Whether rows differ in letter case. A database that takes them for equal does not order them."""
    return one != other and one.lower() == other.lower()


def _loosely(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float | Decimal) else repr(value)


def row_key(row: Row) -> str:
    """A row without the last digits of its numbers, which hang on the order in which the database adds."""
    return repr([f"{value:.12g}" if isinstance(value, float) else value for value in row])


def compare(answer: Answer, rows: Rows, how: Comparison) -> str | None:
    """None if the result equals the answer; otherwise the first difference, for a person who debugs a reward.

    Raises:
        VerifierError: the comparison exceeded its bound of work.
    """
    wanted = answer.result
    if len(rows.columns) != len(wanted.columns):
        return f"{number_of(len(rows.columns), 'column')}, expected {len(wanted.columns)}"
    if how.semantics != "set" and len(rows.rows) != len(wanted.rows):
        return f"{number_of(len(rows.rows), 'row')}, expected {len(wanted.rows)}"
    if rows.rows == wanted.rows:
        return None  # most right predictions give the gold query's rows so
    any_columns = how.semantics == "test-suite"
    gold, found = _comparable(wanted, rows, how.tolerance, together=any_columns)
    if any_columns:
        same = match_in_any_order(gold, found, answer.ends)
        return None if same else "whatever the order of its columns, the result has other rows than the gold query's"
    mine, theirs = (list(zip(*columns, strict=True)) for columns in (gold, found))
    coded = list(zip(mine, wanted.rows, strict=False)), list(zip(theirs, rows.rows, strict=False))
    if how.semantics == "set":
        return None if set(mine) == set(theirs) else _difference(*(dict(side).items() for side in coded))
    for start, stop in pairwise((0, *answer.ends)):
        if Counter(mine[start:stop]) != Counter(theirs[start:stop]):
            difference = _difference(*(side[start:stop] for side in coded))
            if len(answer.ends) == 1:
                return difference
            if Counter(mine) == Counter(theirs):
                difference = f"the same rows in another order, but the gold query orders: {difference}"
            return f"{f'row {stop}' if stop == start + 1 else f'rows {start + 1} to {stop}'}: {difference}"
    return None


def _comparable(wanted: Rows, rows: Rows, tolerance: float, *, together: bool) -> list[list[Sequence[Any]]]:
    """The columns of both with numbers that are the same where they count as equal.

    ``together``: numbers count as equal in all columns; otherwise only in those of the same place.
    """
    empty: list[Row] = [()] * len(wanted.columns)
    sides = [plain_columns(zip(*side.rows, strict=True)) or empty for side in (wanted, rows)]
    if together:
        numbers = [representatives([column for side in sides for column in side], tolerance)] * len(empty)
    else:
        numbers = [representatives(pair, tolerance) for pair in zip(*sides, strict=True)]
    return [list(map(represented, side, numbers)) for side in sides]


def _difference(gold: Iterable[Coded], found: Iterable[Coded]) -> str:
    """Which rows are missing, and which are too many."""
    gold, found = list(gold), list(found)
    parts = {"missing": _shown(surplus(gold, found)), "too many": _shown(surplus(found, gold))}
    return "; ".join(f"{name}: {rows}" for name, rows in parts.items() if rows)


def surplus(rows: Iterable[Coded], others: Iterable[Coded]) -> Iterator[Row]:
    """The rows that the others do not have as often."""
    left = Counter(code for code, _ in others)
    for code, row in rows:
        left[code] -= 1
        if left[code] < 0:
            yield row


def _shown(rows: Iterable[Row]) -> str:
    every = list(rows)
    more = f" and {len(every) - _ROWS} more" if len(every) > _ROWS else ""
    return ", ".join(f"({', '.join(map(cell, row))})" for row in every[:_ROWS]) + more


def number_of(count: int, noun: str) -> str:
    """Such as "1 row" and "2 rows"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def cell(value: Any) -> str:
    """A value as people write it, cut after some characters."""
    text = "NULL" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= CELL else text[: CELL - 1] + "…"
