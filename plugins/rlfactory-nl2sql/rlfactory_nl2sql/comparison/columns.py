"""Match the columns of a result with those of an answer when their order is free.

The order of rows is free too, so this is as hard as graph isomorphism. The method is colour refinement (1-dimensional
Weisfeiler-Leman) over rows and columns: columns are distinguished by their values and rows by their columns' values,
until nothing changes. If several columns remain possible for one, each is tried, which refines the colours further. A
match is always verified by comparing the rows, so it is never wrong. The number of values read is bounded. A result
that exceeds it ends in an error and never in a wrong answer. Real tables need one or two refinements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import Any

from rlfactory_core.errors import VerifierError
from rlfactory_nl2sql.comparison.rows import Sides, Span
from rlfactory_nl2sql.comparison.values import clusters, coded, has_loose

_MOST_VALUES = 10_000_000  # values read in one search; they take some seconds
_MOST_PASSES = 40  # over large tables, for which that would be too few
_PROOF = 5  # comparing rows by value takes as long as about so many passes

Columns = Sequence[Sequence[Any]]
Choices = dict[int, list[int]]  # answer's column -> the result's columns that it may be, one of each kind


@dataclass(frozen=True, slots=True)
class _Rows:
    """Which rows of the answer and of the result correspond."""

    gold: Sequence[int]
    found: Sequence[int]


@dataclass(frozen=True, slots=True)
class _State:
    """What is known at one point of the search."""

    fixed: Mapping[int, int]  # answer's column -> result's column
    gold: Sequence[int]  # a colour for each row of the answer; rows of different colours do not correspond
    found: Sequence[int]  # the same colours for the rows of the result
    whole: _Rows  # one to one
    cut: _Rows  # those of the result are a part of those of the answer


class Arrangements:
    """The search for the columns of a result that correspond to an answer's."""

    def __init__(self, gold: Columns, found: Columns, ties: Sequence[Span], tolerance: float) -> None:
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
        self._colours = len(numbers)
        loose = {number for code, number in numbers.items() if has_loose(code, everything)}
        self._values = (gold, found) if loose else (self._gold, self._found)
        self._kinds = self._kinds_of_columns(loose)

    def find(self, *, ordered: bool) -> list[int] | None:
        """For each column of the answer, the corresponding column of the result; None if the result is not the answer.

        Raises:
            VerifierError: it could not be found out in bounded work.
        """
        waiting = [iter([self._start(ordered=ordered)])]
        while waiting:
            state = next(waiting[-1], None)
            if state is None:
                waiting.pop()
                continue
            refined = self._refine(state)
            if refined is None:
                continue
            state, choices = refined
            if any(len(choice) > 1 for choice in choices.values()):
                waiting.append(self._branches(state, choices))
            elif (arranged := self._arranged(state, choices)) and self._proves(arranged, ordered=ordered):
                return arranged
        return None

    def missing(self) -> list[int]:
        """The columns of the answer whose values no column of the result has, in any order of rows."""
        free = Counter(self._kinds)
        missing = []
        for column, choice in self._choices(self._start(ordered=False))[0].items():
            kind = next((self._kinds[other] for other in choice if free[self._kinds[other]]), None)
            if kind is None:
                missing.append(column)
            else:
                free[kind] -= 1
        return missing

    def _start(self, *, ordered: bool) -> _State:
        """The state before the first refinement. If ties are ordered, each has a colour of its own."""
        gold, found = [0] * len(self._gold[0]), [0] * len(self._found[0])
        cut = {number for number, tie in enumerate(self._ties) if not tie.whole}
        if ordered:
            position = 0
            for number, tie in enumerate(self._ties):
                gold[tie.start : tie.stop] = [number] * len(tie.rows)
                found[position : position + tie.take] = [number] * tie.take
                position += tie.take
        elif cut:
            cut = {0}
        whole_rows, cut_rows = (
            _Rows(*([index for index, tie in enumerate(side) if (tie in cut) == which] for side in (gold, found)))
            for which in (False, True)
        )
        return _State({}, gold, found, whole_rows, cut_rows)

    def _kinds_of_columns(self, loose: set[int]) -> list[int]:
        """A number for each column of the result: columns of one kind hold the same values in the same rows."""
        kinds: dict[Hashable, int] = {}
        return [
            kinds.setdefault((tuple(codes), None if loose.isdisjoint(codes) else repr(values)), len(kinds))
            for codes, values in zip(self._found, self._values[1], strict=True)
        ]

    def _refine(self, state: _State) -> tuple[_State, Choices] | None:
        """Refine until nothing changes. Also returns each column's possible matches; None if a column has none."""
        while True:
            self._spend(len(self._gold) * len(state.gold) + len(self._found) * len(state.found))
            choices, classes = self._choices(state)
            if not all(choices.values()):
                return None
            if all(len(choice) == 1 for choice in choices.values()):
                return state, choices
            finer = self._refine_rows(state, choices, classes)
            if finer is None:
                return None
            if len(set(finer.gold)) == len(set(state.gold)):
                return state, choices
            state = finer

    def _choices(self, state: _State) -> tuple[Choices, tuple[dict[int, int], dict[int, int]]]:
        """The possible matches of each open column of the answer, and the class of each open column on both sides."""
        taken = set(state.fixed.values())
        gold = [column for column in range(len(self._gold)) if column not in state.fixed]
        found = [column for column in range(len(self._found)) if column not in taken]
        numbers: dict[Hashable, int] = {}
        gold_classes, found_classes = (
            {column: numbers.setdefault(frozenset(held.items()), len(numbers)) for column, held in side.items()}
            for side in self._held(state, gold, found, state.whole)
        )
        kinds: dict[int, dict[int, int]] = {}
        for column, number in found_classes.items():
            kinds.setdefault(number, {}).setdefault(self._kinds[column], column)
        choices = {column: list(kinds.get(gold_classes[column], {}).values()) for column in gold}
        if state.cut.gold:
            room, parts = self._held(state, gold, found, state.cut)
            choices = {
                column: [other for other in choice if parts[other] <= room[column]]
                for column, choice in choices.items()
            }
        return choices, (gold_classes, found_classes)

    def _held(
        self, state: _State, gold: Sequence[int], found: Sequence[int], rows: _Rows
    ) -> tuple[dict[int, Counter[int]], dict[int, Counter[int]]]:
        """How often each of these columns holds each value in these rows of each colour, on both sides."""
        held = []
        for names, columns, colours, which in (
            (gold, self._gold, state.gold, rows.gold),
            (found, self._found, state.found, rows.found),
        ):
            bases = [colour * self._colours for colour in _pick(colours, which)]
            held.append({name: Counter(map(add, bases, _pick(columns[name], which))) for name in names})
        return held[0], held[1]

    def _refine_rows(
        self, state: _State, choices: Choices, classes: tuple[dict[int, int], dict[int, int]]
    ) -> _State | None:
        """Give rows different colours if their values in settled columns differ.

        If both sides have equally many columns, values in the columns of a class may differ, too.
        """
        settled = {column: choice[0] for column, choice in choices.items() if len(choice) == 1}
        gold: Iterable[Hashable] = zip(state.gold, *(self._gold[column] for column in settled), strict=True)
        found: Iterable[Hashable] = zip(state.found, *(self._found[column] for column in settled.values()), strict=True)
        if len(self._gold) == len(self._found):
            self._spend(len(classes[0]) * len(state.gold) + len(classes[1]) * len(state.found))
            gold, found = (
                zip(rows, _bags([columns[column] for column in kinds], list(kinds.values())), strict=True)
                for rows, columns, kinds in zip((gold, found), (self._gold, self._found), classes, strict=True)
            )
        return self._recoloured(state, state.fixed, gold, found)

    def _branches(self, state: _State, choices: Choices) -> Iterator[_State]:
        """The states after each choice for the column with the fewest choices."""
        column = min(
            (column for column in choices if len(choices[column]) > 1), key=lambda column: len(choices[column])
        )
        for other in choices[column]:
            finer = self._recoloured(
                state,
                {**state.fixed, column: other},
                zip(state.gold, self._gold[column], strict=True),
                zip(state.found, self._found[other], strict=True),
            )
            if finer is not None:
                yield finer

    @staticmethod
    def _recoloured(
        state: _State, fixed: Mapping[int, int], gold: Iterable[Hashable], found: Iterable[Hashable]
    ) -> _State | None:
        """The state with these colours as small integers; None if the rows no longer correspond."""
        numbers: dict[Hashable, int] = {}
        gold, found = ([numbers.setdefault(colour, len(numbers)) for colour in side] for side in (gold, found))
        if Counter(_pick(gold, state.whole.gold)) != Counter(_pick(found, state.whole.found)):
            return None
        if not Counter(_pick(found, state.cut.found)) <= Counter(_pick(gold, state.cut.gold)):
            return None
        return replace(state, fixed=fixed, gold=gold, found=found)

    def _arranged(self, state: _State, choices: Choices) -> list[int] | None:
        """One column of the result for each column of the answer, none twice; None if a kind has too few columns."""
        arranged = dict(state.fixed)
        free: dict[int, list[int]] = {}
        for column, kind in enumerate(self._kinds):
            if column not in arranged.values():
                free.setdefault(kind, []).append(column)
        for column, (choice,) in choices.items():
            if not free[self._kinds[choice]]:
                return None
            arranged[column] = free[self._kinds[choice]].pop(0)
        return [arranged[column] for column in range(len(self._gold))]

    def _proves(self, arranged: Sequence[int], *, ordered: bool) -> bool:
        """Whether the rows are equal with the columns in this order."""
        gold, found = self._values
        self._spend(_PROOF * 2 * len(gold) * len(gold[0]))
        sides = Sides(gold, [found[column] for column in arranged], self._tolerance)
        equal = sides.in_order(self._ties) if ordered else sides.fit(self._ties, range(len(sides.found)))
        self._spend(_PROOF * sides.steps)
        return equal

    def _spend(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise VerifierError(
                f"The results could not be compared: their {len(self._gold)} columns of {len(self._gold[0])} rows are "
                "too much alike to find out which is which. Compare by position, with the semantics multiset."
            )


def _pick(values: Sequence[int], rows: Sequence[int]) -> Sequence[int]:
    return values if len(rows) == len(values) else [values[row] for row in rows]


def _bags(columns: Sequence[Sequence[int]], classes: Sequence[int]) -> Iterable[Hashable]:
    """For each row its values in these columns, each with its column's class, sorted."""
    return (tuple(sorted(zip(classes, row, strict=True))) for row in zip(*columns, strict=True))
