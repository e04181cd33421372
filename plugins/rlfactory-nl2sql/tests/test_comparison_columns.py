"""Columns in any order: found fast where tables are large and their columns alike, and never wrongly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from effort import modest_effort
from rlfactory_nl2sql.comparison.compare import Comparison, answer_of, compare
from rlfactory_nl2sql.connection import Rows

from rlfactory_core.errors import VerifierError

Table = Sequence[Sequence[Any]]
ANY_COLUMNS = Comparison("test-suite")


def rows_of(table: Table) -> Rows:
    return Rows(tuple(f"c{number}" for number in range(len(table[0]))), tuple(map(tuple, table)))


def difference(gold: Table, result: Table, how: Comparison = ANY_COLUMNS, *, ordered: bool = False) -> str | None:
    return compare(answer_of(rows_of(gold), ordered=ordered), rows_of(result), how)


def shuffled(table: Table, seed: int = 0, *, rows: bool = True) -> list[list[Any]]:
    """The same table with its columns, and its rows, in other orders."""
    generator = random.Random(seed)
    columns = generator.sample(range(len(table[0])), len(table[0]))
    lines = generator.sample(list(table), len(table)) if rows else table
    return [[line[column] for column in columns] for line in lines]


def alike(seed: int = 0) -> list[list[Any]]:
    """200 rows of 30 columns: 20 are equal, and 10 hold the same few values as often as one another."""
    generator = random.Random(seed)
    same = [generator.randint(0, 3) for _ in range(200)]
    others = [generator.sample([0, 1, 2, 3] * 50, 200) for _ in range(10)]
    return [list(line) for line in zip(*[same] * 20, *others, strict=True)]


def trade(table: Table, seed: int) -> list[list[Any]]:
    """Another table of 0 and 1 with the same sum in each row and column: one ``1 0 / 0 1`` becomes ``0 1 / 1 0``."""
    changed = [list(line) for line in table]
    generator = random.Random(seed)
    while True:
        a, b = generator.sample(range(len(changed)), 2)
        c, d = generator.sample(range(len(changed[0])), 2)
        if changed[a][c] and changed[b][d] and not changed[a][d] and not changed[b][c]:
            changed[a][c], changed[a][d], changed[b][c], changed[b][d] = 0, 1, 1, 0
            return changed


def cycles(*lengths: int) -> list[list[int]]:
    """Which vertices each edge joins, in cycles of these lengths."""
    size, edges, start = sum(lengths), [], 0
    for length in lengths:
        edges += [(start + number, start + (number + 1) % length) for number in range(length)]
        start += length
    return [[int(vertex in edge) for vertex in range(size)] for edge in edges]


CYCLIC = [[(row + column) % 24 for column in range(24)] for row in range(24)]
PLANE = [[int((a * x + b - y) % 5 == 0) for x in range(5) for y in range(5)] for a in range(5) for b in range(5)]
HALVES = [list(line) for line in zip(*[random.Random(n).sample([0, 1] * 100, 200) for n in range(30)], strict=True)]


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(alike(), id="equal columns and columns that hold the same values"),
        pytest.param([[int(row == column) for column in range(40)] for row in range(40)], id="permutation matrix"),
        pytest.param(CYCLIC, id="latin square"),
        pytest.param(PLANE, id="affine plane"),
        pytest.param(HALVES, id="random halves"),
        pytest.param(cycles(15, 15), id="cycles"),
        pytest.param([[0] * 30] * 200, id="all the same"),
        pytest.param([list(pair) for pair in combinations(range(20), 2)], id="two columns"),
    ],
)
def test_a_table_is_found_again_in_any_order(table: Table) -> None:
    with modest_effort():
        assert all(difference(table, shuffled(table, seed)) is None for seed in range(2))
        assert difference(table, shuffled(table, 3, rows=False), ordered=True) is None


@pytest.mark.parametrize(
    ("gold", "result"),
    [
        pytest.param(alike(), alike(1), id="columns that hold the same values"),
        pytest.param(
            [[(row + column) % 16 for column in range(16)] for row in range(16)],
            [[row ^ column for column in range(16)] for row in range(16)],
            id="latin squares of two groups",
        ),
        pytest.param(HALVES, trade(HALVES, 0), id="random halves"),
        pytest.param(cycles(6), cycles(3, 3), id="one cycle or two"),
        pytest.param(cycles(10, 5), cycles(8, 7), id="cycles of other lengths"),
    ],
)
def test_tables_that_only_look_alike_are_told_apart(gold: Table, result: Table) -> None:
    with modest_effort():
        assert difference(gold, shuffled(result)) is not None


def test_one_changed_value_among_equal_columns_is_seen() -> None:
    table = alike()
    changed = shuffled(table)
    changed[17][4] += 1
    assert difference(table, changed) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gold", "result"),
    [
        # Many equal parts, of which one is different: trying all their assignments would take forever.
        pytest.param(cycles(*[6] * 12), cycles(*[6] * 11, 3, 3), id="one cycle of twelve"),
        pytest.param(PLANE, trade(PLANE, 0), id="affine plane"),
    ],
)
def test_a_puzzle_ends_undecided_and_in_time(gold: Table, result: Table) -> None:
    with modest_effort(), pytest.raises(VerifierError, match="too much alike"):
        difference(gold, shuffled(result))


def test_large_tables_are_not_puzzles() -> None:
    generator = random.Random(0)
    table = [[generator.randrange(1000) for _ in range(120)] for _ in range(2000)]
    assert difference(table, shuffled(table)) is None
    assert difference(table, shuffled([[line[0] + 1, *line[1:]] for line in table])) is not None


def test_rounding_does_not_hide_which_column_is_which() -> None:
    generator = random.Random(0)
    table = [[generator.random() * 1e3 for _ in range(8)] + [generator.randint(0, 2)] for _ in range(300)]
    noisy = [[value * (1 + generator.uniform(-1, 1) * 1e-12) for value in line] for line in table]
    assert difference(table, shuffled(noisy)) is None
    noisy[7][3] *= 1.001
    assert difference(table, shuffled(noisy)) is not None


def test_where_rows_are_near_to_several_the_columns_are_still_found() -> None:
    """Columns of numbers so dense that each is near to many others: only their real values tell them apart."""
    generator = random.Random(1)
    table = [[1 + generator.randint(0, 40) * 4e-7 for _ in range(3)] for _ in range(60)]
    assert difference(table, shuffled(table)) is None
    assert difference(table, shuffled([[1 + generator.randint(0, 40) * 4e-7 for _ in range(3)] for _ in range(60)]))


def test_order_counts_with_columns_in_any_order() -> None:
    gold = [["a", 1], ["b", 2], ["c", 3]]
    assert difference(gold, [[1, "a"], [2, "b"], [3, "c"]], ordered=True) is None
    moved = [[2, "b"], [1, "a"], [3, "c"]]
    assert difference(gold, moved) is None
    assert difference(gold, moved, ordered=True) is not None
