"""Compare a result with a gold query's answer, with one of several definitions of equality, and say how they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from rlfactory_nl2sql.comparison.answer import Answer, Tie, coded_rows, first_difference, same_set
from rlfactory_nl2sql.comparison.columns import ColumnSearch
from rlfactory_nl2sql.connection import Row, Rows

Semantics = Literal["multiset", "set", "test-suite"]
_ROWS = 3  # as examples
CELL = 60  # most characters shown of a value
Coded = tuple[Row, Row]
"""A row, after what it is compared by."""


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
    tolerance: float = 1e-9  # relative, of floats and fractional decimals; 0: none, and 0.1 is the most


def compare(answer: Answer, rows: Rows, how: Comparison) -> str | None:
    """None if the result equals the answer; otherwise the first difference, for a person who debugs a reward.

    Raises:
        VerifierError: the comparison exceeded its bound of work.
    """
    if len(rows.columns) != len(answer.columns):
        return f"{number_of(len(rows.columns), 'column')}, expected {len(answer.columns)}"
    if how.semantics != "set" and len(rows.rows) != answer.size:
        return f"{number_of(len(rows.rows), 'row')}, expected {answer.size}"
    every = chain.from_iterable(tie.rows for tie in answer.ties)
    if answer.whole and rows.rows == tuple(every):
        return None  # most right predictions give the gold query's rows so
    any_columns = how.semantics == "test-suite"
    ties, found = coded_rows(answer, rows, how.tolerance, together=any_columns)
    if any_columns:
        same = ColumnSearch(ties, found).succeeds()
        return None if same else "whatever the order of its columns, the result has other rows than the gold query's"
    if how.semantics == "set":
        given = zip(found, rows.rows, strict=True)
        return None if same_set(ties, found) else _rows(answer.ties, ties, given, distinct=True)
    return _by_ties(answer, rows, ties, found)


def _by_ties(answer: Answer, rows: Rows, ties: Sequence[Tie], found: Sequence[Row]) -> str | None:
    """The first tie that differs."""
    number = first_difference(ties, found)
    if number is None:
        return None
    wanted, start = answer.ties[number], sum(tie.take for tie in ties[:number])
    stop = start + wanted.take
    difference = _rows([wanted], [ties[number]], zip(found[start:stop], rows.rows[start:stop], strict=True))
    if len(ties) == 1:
        return difference
    if all(tie.whole for tie in ties) and Counter(found) == Counter(chain.from_iterable(tie.rows for tie in ties)):
        difference = f"the same rows in another order, but the gold query orders: {difference}"
    where = f"row {stop}" if wanted.take == 1 else f"rows {start + 1} to {stop}"
    return f"{where}: {difference}"


def _rows(ties: Sequence[Tie], codes: Sequence[Tie], given: Iterable[Coded], *, distinct: bool = False) -> str:
    """Which rows of the ties are missing, and which of the given ones are too many. Rows of cut ties may be there."""
    lists: list[list[Coded]] = [[], [], list(given)]
    for tie, code in zip(ties, codes, strict=True):
        lists[0 if tie.whole else 1] += zip(code.rows, tie.rows, strict=True)
    if distinct:
        lists = [list(dict(rows).items()) for rows in lists]
    required, possible, found = lists
    missing = _surplus(required, found)
    extra = _surplus(found, [*required, *possible])
    parts = [f"{name}: {rows}" for name, rows in (("missing", missing), ("too many", extra)) if rows]
    return "; ".join(parts) or "each row alone could be right, but not all of them together"


def number_of(count: int, noun: str) -> str:
    """Such as "1 row" and "2 rows"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _surplus(rows: Iterable[Coded], others: Iterable[Coded]) -> str:
    """The rows that the others do not have as often."""
    left = Counter(code for code, _ in others)
    surplus = []
    for code, row in rows:
        left[code] -= 1
        if left[code] < 0:
            surplus.append(row)
    more = f" and {len(surplus) - _ROWS} more" if len(surplus) > _ROWS else ""
    return ", ".join(f"({', '.join(map(cell, row))})" for row in surplus[:_ROWS]) + more


def cell(value: Any) -> str:
    """A value as people write it, cut after some characters."""
    text = "NULL" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= CELL else text[: CELL - 1] + "…"
