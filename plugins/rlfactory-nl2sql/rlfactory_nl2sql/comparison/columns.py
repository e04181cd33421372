"""Match the columns of a result with those of an answer when their order is free.

The answer's columns get one of the result's each, those with the fewest candidates first. A candidate holds the same
values equally often, in rows that agree in the columns before it. A match is always verified by comparing the rows. The
number of values read is bounded, and a result that exceeds it ends in an error and never in a wrong answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import add
from typing import Any

from rlfactory_core.errors import VerifierError
from rlfactory_nl2sql.comparison.answer import Tie
from rlfactory_nl2sql.comparison.rows import Sides
from rlfactory_nl2sql.comparison.values import clusters, coded, has_loose

_MOST_VALUES = 10_000_000  # values read in one search; they take some seconds
_MOST_PASSES = 40  # over large tables, for which that would be too few
_PROOF = 5  # comparing rows by value takes as long as about so many passes

Columns = Sequence[Sequence[Any]]
Colours = tuple[Sequence[int], Sequence[int]]
"""A small integer for each row of the answer and of the result; rows of different colours do not correspond."""


class Arrangements:
    """The search for the columns of a result that correspond to an answer's."""

    def __init__(self, gold: Columns, found: Columns, ties: Sequence[Tie[int]], tolerance: float) -> None:
        """``gold``, ``found``: columns of normal values, of all rows of the ties and of the result."""
        self._ties = ties
        self._tolerance = tolerance
        self._left = max(_MOST_VALUES, _MOST_PASSES * sum(map(len, (*gold, *found))))
        everything = clusters((*gold, *found), tolerance)
        numbers: dict[Any, int] = {}  # codes as small integers, which compare and sort fast
        self._gold, self._found = (
            [[numbers.setdefault(code, len(numbers)) for code in coded(column, everything)] for column in side]
            for side in (gold, found)
        )
        self._codes = len(numbers)
        self._certain = [row for tie in ties if tie.whole for row in tie.rows]  # rows that have to be in the result
        loose = {number for code, number in numbers.items() if has_loose(code, everything)}
        self._values = (gold, found) if loose else (self._gold, self._found)
        # Columns of the result that hold the same values in the same rows, by the first of them.
        kinds: dict[Hashable, list[int]] = {}
        for place, (codes, values) in enumerate(zip(self._found, self._values[1], strict=True)):
            kinds.setdefault((tuple(codes), None if loose.isdisjoint(codes) else repr(values)), []).append(place)
        self._equal = {places[0]: places for places in kinds.values()}

    def find(self, *, ordered: bool) -> list[int] | None:
        """For each column of the answer, the corresponding column of the result; None if the result is not the answer.

        Raises:
            VerifierError: it could not be found out in bounded work.
        """
        start = self._start(ordered=ordered)
        candidates = self._candidates(range(len(self._gold)), self._equal, start)
        order = sorted(candidates, key=lambda column: len(candidates[column]))
        waiting: list[tuple[tuple[int, ...], Colours]] = [((), start)]
        while waiting:
            chosen, colours = waiting.pop()
            if len(chosen) == len(order):
                arranged = self._arranged(dict(zip(order, chosen, strict=True)))
                if self._proves(arranged, ordered=ordered):
                    return arranged
                continue
            column, used = order[len(chosen)], Counter(chosen)
            free = [kind for kind in candidates[column] if used[kind] < len(self._equal[kind])]
            fitting = self._candidates([column], free, colours)[column]
            waiting += [((*chosen, kind), self._finer(colours, column, kind)) for kind in reversed(fitting)]
        return None

    def missing(self) -> list[int]:
        """The columns of the answer whose values no column of the result has, in any order of rows."""
        free = Counter({kind: len(places) for kind, places in self._equal.items()})
        missing, start = [], self._start(ordered=False)
        for column, kinds in self._candidates(range(len(self._gold)), self._equal, start).items():
            kind = next((kind for kind in kinds if free[kind]), None)
            if kind is None:
                missing.append(column)
            else:
                free[kind] -= 1
        return missing

    def _start(self, *, ordered: bool) -> Colours:
        """One colour for all rows, or if ties are ordered one for each of them."""
        gold = [number * ordered for number, tie in enumerate(self._ties) for _ in tie.rows]
        return gold, [number * ordered for number, tie in enumerate(self._ties) for _ in range(tie.take)]

    def _candidates(self, columns: Iterable[int], kinds: Iterable[int], colours: Colours) -> dict[int, list[int]]:
        """For each of these columns of the answer, the kinds of columns of the result that it may be."""
        found = {kind: self._held(self._found[kind], colours[1]) for kind in kinds}
        candidates = {}
        for column in columns:
            codes = self._gold[column]
            most = self._held(codes, colours[0])
            if len(self._certain) == len(codes):
                candidates[column] = [kind for kind, held in found.items() if dict.__eq__(held, most)]
            else:
                least = self._held(*([side[row] for row in self._certain] for side in (codes, colours[0])))
                candidates[column] = [kind for kind, held in found.items() if least <= held <= most]
        return candidates

    def _held(self, codes: Sequence[int], colours: Sequence[int]) -> Counter[int]:
        """How often a column holds each value in rows of each colour."""
        self._spend(len(codes))
        return Counter(map(add, codes, [colour * self._codes for colour in colours]))

    def _finer(self, colours: Colours, column: int, kind: int) -> Colours:
        """Different colours for rows whose values in these columns differ."""
        numbers: dict[Hashable, int] = {}
        gold, found = (
            [numbers.setdefault(row, len(numbers)) for row in zip(side, codes, strict=True)]
            for side, codes in zip(colours, (self._gold[column], self._found[kind]), strict=True)
        )
        return gold, found

    def _arranged(self, chosen: Mapping[int, int]) -> list[int]:
        """One column of the result for each column of the answer, none twice."""
        free = {kind: list(reversed(places)) for kind, places in self._equal.items()}
        return [free[chosen[column]].pop() for column in range(len(self._gold))]

    def _proves(self, arranged: Sequence[int], *, ordered: bool) -> bool:
        """Whether the rows are equal with the columns in this order."""
        gold, found = self._values
        self._spend(_PROOF * 2 * len(gold) * len(gold[0]))
        sides = Sides(gold, [found[column] for column in arranged], self._tolerance)
        return sides.in_order(self._ties) if ordered else sides.fit(self._ties, range(len(sides.found)))

    def _spend(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise VerifierError(
                f"The results could not be compared: their {len(self._gold)} columns of {len(self._gold[0])} rows are "
                "too much alike to find out which is which. Compare by position, with the semantics multiset."
            )
