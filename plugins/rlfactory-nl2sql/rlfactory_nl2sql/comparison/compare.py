"""Compare a result with a gold query's answer, with one of several definitions of equality, and say how they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from reprlib import Repr
from typing import Any, Literal, get_args

from rlfactory_core.errors import ConfigError, VerifierError, nearest
from rlfactory_nl2sql.comparison.answer import Answer, Order, Tie
from rlfactory_nl2sql.comparison.columns import Arrangements
from rlfactory_nl2sql.comparison.rows import Sides, columns_of, numbered
from rlfactory_nl2sql.connection import Row, Rows

Semantics = Literal["multiset", "set", "test-suite", "subset", "exact"]
_ROWS = 3  # as examples
Coded = tuple[Hashable, Row]
"""A row, after what it is compared by."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The definition of equality for a result and a gold query's answer. Column names never count.

    ``semantics``:

    - ``multiset``: columns by position; each row as often as in the answer, in order where the gold query orders.
    - ``set``: columns by position; the same distinct rows, in any order (BIRD's execution accuracy).
    - ``test-suite``: like ``multiset`` with the columns in any order (Zhong et al. 2020, arXiv 2010.02840).
    - ``subset``: like ``test-suite``, and the result may have further columns (defog's sql-eval).
    - ``exact``: columns by position, rows in exactly the order in which the gold query gave them.

    In all of them the number of columns counts for empty results too, and values are equal as in `values`.
    """

    semantics: Semantics = "multiset"
    order: Order = "auto"  # whether the order of rows counts: where the gold query orders, always, or never
    tolerance: float = 1e-9  # relative, of floats and fractional decimals; 0: none

    def __post_init__(self) -> None:
        for name, value, known in (
            ("semantics", self.semantics, get_args(Semantics)),
            ("order", self.order, get_args(Order)),
        ):
            if value not in known:
                raise ConfigError(f"Unknown {name} of a comparison: {value!r}. {nearest(str(value), known)}")
        if not 0 <= self.tolerance <= 0.1:
            raise ConfigError(f"The tolerance of a comparison is a number from 0 to 0.1, not {self.tolerance!r}.")
        if (self.semantics, self.order) in (("set", "always"), ("exact", "never")):
            raise ConfigError(
                f"A comparison with semantics {self.semantics!r} and order {self.order!r} contradicts itself. "
                'Leave the order at "auto".'
            )

    @property
    def fixed(self) -> bool:
        """Whether each row has its place. Then the gold query runs as it is, not as `checks.ties` rewrites it."""
        return self.semantics == "exact" or self.order == "always"

    @property
    def ordered(self) -> bool:
        """Whether the order of an answer's ties counts."""
        return self.semantics != "set" and self.order != "never"


def compare(answer: Answer, rows: Rows, how: Comparison) -> str | None:
    """None if the result equals the answer; otherwise the first difference, for a person who debugs a reward.

    Raises:
        VerifierError: the comparison exceeded its bound of work.
    """
    wanted, given = len(answer.columns), len(rows.columns)
    if given != wanted and not (how.semantics == "subset" and given > wanted > 0):
        least = "at least " if how.semantics == "subset" else ""
        return f"{number_of(given, 'column')}, expected {least}{wanted}"
    if how.semantics != "set" and len(rows.rows) != answer.size:
        return f"{number_of(len(rows.rows), 'row')}, expected {answer.size}"
    if all(tie.whole for tie in answer.ties) and _evidently_equal(answer, rows):
        return None
    return _Difference(_in_place(answer) if how.fixed else answer, rows, how).find()


def _evidently_equal(answer: Answer, rows: Rows) -> bool:
    """Whether each value equals the answer's in its place; most right predictions give the gold query's rows so."""
    wanted = tuple(chain.from_iterable(tie.rows for tie in answer.ties))
    try:
        return len(answer.columns) == len(rows.columns) and rows.rows == wanted
    except RecursionError:  # deeply nested JSON, which `values` flattens
        return False


def _in_place(answer: Answer) -> Answer:
    """Each row as a tie of its own, in the gold query's order. Cut ties are kept, since their order is unknown."""
    return Answer(
        answer.columns,
        tuple(part for tie in answer.ties for part in ([Tie((row,), 1) for row in tie.rows] if tie.whole else [tie])),
    )


class _Difference:
    """The search for a difference between an answer and a result."""

    def __init__(self, answer: Answer, rows: Rows, how: Comparison) -> None:
        self._answer = answer
        self._given = rows.rows
        self._how = how
        self._wanted = [row for tie in answer.ties for row in tie.rows]
        self._ties = numbered(answer.ties)
        self._gold = columns_of(self._wanted, len(answer.columns))
        self._found = columns_of(rows.rows, len(rows.columns))

    def find(self) -> str | None:
        if self._how.semantics in ("test-suite", "subset"):
            return self._by_columns()
        sides = Sides(self._gold, self._found, self._how.tolerance)
        if self._how.semantics == "set":
            return None if sides.fit_as_set(self._ties) else self._rows(sides, self._ties, self._all)
        if not self._how.ordered:
            return None if sides.fit(self._ties, self._all) else self._rows(sides, self._ties, self._all)
        return self._by_ties(sides)

    @property
    def _all(self) -> range:
        return range(len(self._given))

    def _by_ties(self, sides: Sides) -> str | None:
        """The first tie that differs."""
        position = 0
        for tie in self._ties:
            given = range(position, position + tie.take)
            if not sides.fit([tie], given):
                difference = self._in_tie(sides, tie, given)
                moved = len(self._ties) > 1 and _is_so(lambda: sides.fit(self._ties, self._all))
                return f"{self._moved}: {difference}" if moved else difference
            position = given.stop
        return None

    def _in_tie(self, sides: Sides, tie: Tie[int], given: range) -> str:
        difference = self._rows(sides, [tie], given)
        if len(self._ties) == 1:
            return difference
        if len(given) > 1:
            return f"rows {given.start + 1} to {given.stop}: {difference}"
        wanted = show(self._wanted[tie.rows[0]]) if tie.whole else f"one of {number_of(len(tie.rows), 'row')}"
        return f"row {given.start + 1} is {show(self._given[given.start])}, expected {wanted}"

    @property
    def _moved(self) -> str:
        why = "the gold query orders" if self._how.order == "auto" and not self._how.fixed else "their order counts"
        return f"the same rows in another order, but {why}"

    def _rows(self, sides: Sides, ties: Sequence[Tie[int]], given: range) -> str:
        required, possible = (
            [(sides.gold[index], self._wanted[index]) for tie in ties if tie.whole == whole for index in tie.rows]
            for whole in (True, False)
        )
        lists = [required, possible, [(sides.found[index], self._given[index]) for index in given]]
        if self._how.semantics == "set":
            lists = [list(dict(rows).items()) for rows in lists]
        return differences(*lists)

    def _by_columns(self) -> str | None:
        search = Arrangements(self._gold, self._found, self._ties, self._how.tolerance)
        if search.find(ordered=self._how.ordered) is not None:
            return None
        if self._how.ordered and len(self._ties) > 1 and _is_so(lambda: search.find(ordered=False) is not None):
            return self._moved
        lost = [self._answer.columns[column] for column in search.missing()]
        if lost:
            return f"no column of the result has the values of the gold query's {', '.join(map(repr, lost))}"
        return "each column has the values of one of the gold query's columns, but their rows differ"


def _is_so(check: Callable[[], bool]) -> bool:
    """Whether a check is true, if it only serves the wording of a message; False if it cannot find out."""
    try:
        return check()
    except VerifierError:
        return False


def number_of(count: int, noun: str) -> str:
    """Such as "1 row" and "2 rows"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def show(row: Row) -> str:
    """A row as people write it, its values cut at about 80 characters."""
    return f"({', '.join(map(_show_value, row))})"


def differences(required: Iterable[Coded], possible: Iterable[Coded], given: Iterable[Coded]) -> str:
    """Which rows are missing, and which of the ``given`` are too many; some of the ``possible`` have to be there."""
    required, given = list(required), list(given)
    missing = _surplus(required, given)
    extra = _surplus(given, [*required, *possible])
    parts = [f"{name}: {rows}" for name, rows in (("missing", missing), ("too many", extra)) if rows]
    return "; ".join(parts) or "each row alone could be right, but not all of them together"


def _surplus(rows: Iterable[Coded], others: Iterable[Coded]) -> str:
    """The rows that the others do not have as often."""
    left = Counter(code for code, _ in others)
    surplus = []
    for code, row in rows:
        left[code] -= 1
        if left[code] < 0:
            surplus.append(row)
    more = f" and {len(surplus) - _ROWS} more" if len(surplus) > _ROWS else ""
    return ", ".join(map(show, surplus[:_ROWS])) + more


def _show_value(value: Any) -> str:
    if value is None:
        return "NULL"
    short = Repr()
    short.maxstring = short.maxother = short.maxlong = 80
    return short.repr(value)
