"""The named senses of being equal, and the words in which a difference is told."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise
from typing import Any, get_args

import pytest
from effort import modest_effort
from rlfactory_nl2sql.comparison.compare import Answer, Comparison, Semantics, answer_of, compare
from rlfactory_nl2sql.connection import Rows

Table = list[tuple[Any, ...]]
SEMANTICS: tuple[Semantics, ...] = get_args(Semantics)
GOLD: Table = [(1, "a"), (2, "b"), (2, "b")]


def answer(*ties: Table) -> Answer:
    """An answer of these ties."""
    rows = [row for tie in ties for row in tie]
    columns = tuple(f"g{number}" for number in range(len(rows[0])))
    return Answer(Rows(columns, tuple(rows)), tuple(accumulate(map(len, ties))))


def in_order(rows: Table) -> Answer:
    return answer(*[[row] for row in rows])


def result(rows: Table, columns: int = 2) -> Rows:
    return Rows(tuple(f"r{number}" for number in range(len(rows[0]) if rows else columns)), tuple(rows))


def difference(gold: Answer, rows: Table, semantics: Semantics = "multiset", **options: Any) -> str | None:
    return compare(gold, result(rows), Comparison(semantics, **options))


def accepting(gold: Answer, rows: Table) -> set[str]:
    return {semantics for semantics in SEMANTICS if difference(gold, rows, semantics) is None}


def test_what_tells_the_semantics_apart() -> None:
    every = set(SEMANTICS)
    gold = answer(GOLD)
    assert accepting(gold, GOLD) == every
    assert accepting(gold, GOLD[::-1]) == every
    assert accepting(gold, GOLD[:2]) == {"set"}
    assert accepting(gold, [*GOLD, GOLD[0]]) == {"set"}
    assert accepting(gold, [row[::-1] for row in GOLD]) == {"test-suite"}
    assert accepting(gold, [(*row, "more") for row in GOLD]) == set()
    assert accepting(gold, [row[:1] for row in GOLD]) == set()
    assert accepting(gold, []) == set()
    ordered = in_order(GOLD)
    assert accepting(ordered, GOLD) == every
    assert accepting(ordered, GOLD[::-1]) == {"set"}


def test_ties_are_free_within_and_fixed_among_themselves() -> None:
    gold = answer([(1, "a"), (2, "b")], [(3, "c"), (4, "d")])
    assert accepting(gold, [(2, "b"), (1, "a"), (4, "d"), (3, "c")]) == set(SEMANTICS)
    assert accepting(gold, [(3, "c"), (1, "a"), (2, "b"), (4, "d")]) == {"set"}
    assert accepting(gold, [(1, "a"), (2, "b"), (3, "c"), (3, "c")]) == set()
    assert accepting(gold, [("b", 2), ("a", 1), ("d", 4), ("c", 3)]) == {"test-suite"}


def sizes(*names: str, ordered: bool = True, folded: bool = False) -> list[int]:
    """The sizes of the ties of rows that came in these orders."""
    own, *others = (Rows(("name",), tuple((value,) for value in some)) for some in names)
    ends = answer_of(own, [own, *others] if others else (), ordered=ordered, folded=folded).ends
    return [end - start for start, end in pairwise((0, *ends))]


def test_rows_that_change_places_are_a_tie() -> None:
    assert sizes("abbc", ordered=False) == [4]
    assert sizes("abbc") == [1, 1, 1, 1]
    assert sizes("abbcdefg", "acbbedgf") == [1, 3, 2, 2]
    assert sizes("Aab", folded=True) == [2, 1]
    assert sizes("Aab") == [1, 1, 1]
    assert sizes("", "") == sizes("", ordered=False) == []


def test_names_of_columns_do_not_count_but_their_number_does() -> None:
    gold = Answer(Rows(("a", "b"), ()), ())
    for semantics in SEMANTICS:
        how = Comparison(semantics)
        assert compare(gold, Rows(("x", "y"), ()), how) is None
        assert compare(gold, Rows(("x",), ()), how) == "1 column, expected 2"
    assert compare(gold, Rows(("x", "y", "z"), ()), Comparison("set")) == "3 columns, expected 2"


@pytest.mark.parametrize(
    ("gold", "rows", "options", "reason"),
    [
        (answer(GOLD), GOLD[:1], {}, "1 row, expected 3"),
        (
            answer(GOLD),
            [(1, "a"), (1, "a"), (2, None)],
            {},
            "missing: (2, 'b'), (2, 'b'); too many: (1, 'a'), (2, NULL)",
        ),
        (answer(GOLD), [(1, "a"), (7, "b")], {"semantics": "set"}, "missing: (2, 'b'); too many: (7, 'b')"),
        (in_order(GOLD), [(1, "a"), (2, "x"), (2, "b")], {}, "row 2: missing: (2, 'b'); too many: (2, 'x')"),
        (
            in_order(GOLD),
            [(2, "b"), (1, "a"), (2, "b")],
            {},
            "row 1: the same rows in another order, but the gold query orders: missing: (1, 'a'); too many: (2, 'b')",
        ),
        (
            answer([(1, "a"), (2, "b")], [(3, "c")]),
            [(1, "a"), (2, "c"), (3, "c")],
            {},
            "rows 1 to 2: missing: (2, 'b'); too many: (2, 'c')",
        ),
        (
            answer([(1, "a"), (2, "b")]),
            [("a", 2), ("b", 1)],
            {"semantics": "test-suite"},
            "whatever the order of its columns, the result has other rows than the gold query's",
        ),
    ],
)
def test_reasons(gold: Answer, rows: Table, options: dict[str, Any], reason: str) -> None:
    assert compare(gold, result(rows), Comparison(**options)) == reason


def test_only_some_rows_and_the_ends_of_long_values_are_shown() -> None:
    long = difference(answer([(1, "a" * 5000)]), [(1, b"b" * 5000)])
    assert long is not None
    assert len(long) < 250
    found = difference(answer([(number, "x") for number in range(50)]), [(number, "y") for number in range(50)])
    assert found == (
        "missing: (0, 'x'), (1, 'x'), (2, 'x') and 47 more; too many: (0, 'y'), (1, 'y'), (2, 'y') and 47 more"
    )


def noisy(table: Table, generator: random.Random) -> Table:
    return [
        tuple(value * (1 + generator.uniform(-1, 1) * 1e-13) if isinstance(value, float) else value for value in row)
        for row in table
    ]


@pytest.mark.parametrize("semantics", SEMANTICS)
def test_rounding_noise_never_hides_that_rows_are_the_same(semantics: Semantics) -> None:
    """Values lie also beside every border at which rounding to some digits would tell them apart."""
    generator = random.Random(0)
    table: Table = [
        (number % 3, (number // 3) / 8 + 0.5 * 10 ** -(number % 12), round(generator.random(), 6))
        for number in range(3000)
    ]
    found = noisy(table, generator)
    generator.shuffle(found)
    assert difference(answer(table), found, semantics) is None
    changed = [(*found[0][:2], found[0][2] + 0.01), *found[1:]]
    assert difference(answer(table), changed, semantics) is not None


def test_numbers_so_dense_that_each_is_near_to_many() -> None:
    generator = random.Random(0)
    table: Table = [(1 + number * 1e-9, 1 - number * 1e-9) for number in range(10_000)]
    found = noisy(table, generator)
    generator.shuffle(found)
    assert difference(answer(table), found) is None
    assert difference(answer(table), [(value + 1e-3, other) for value, other in found]) is not None


def test_many_dense_rows_are_compared_in_bounded_work() -> None:
    """Two dense columns that have nothing to do with one another."""
    generator = random.Random(0)

    def dense(rows: int) -> Table:
        return [tuple(1 + generator.randrange(150) * 1e-10 for _ in range(2)) for _ in range(rows)]

    few = dense(300)
    assert difference(answer(few), generator.sample(few, 300)) is None
    assert difference(answer(few), dense(300)) is not None
    with modest_effort():
        for semantics in SEMANTICS:
            assert difference(answer(dense(5000)), dense(5000), semantics) is not None


def test_of_numbers_that_are_near_to_many_only_the_closest_are_equal() -> None:
    """Seconds since 1970, each within the tolerance of the next."""
    table: Table = [(1.7e9 + number + 0.25,) for number in range(100)]
    assert difference(answer(table), [(value * (1 + 1e-15),) for (value,) in table]) is None
    assert difference(answer(table), [*table[:99], table[98]]) is not None


@pytest.mark.slow
def test_ten_thousand_rows_are_compared_at_once() -> None:
    generator = random.Random(0)
    table: Table = [
        (
            number,
            generator.choice("abcdefgh") * 5,
            generator.random() * 1e4,
            generator.choice([None, 1, 2]),
            generator.random(),
        )
        for number in range(10_000)
    ]
    found = noisy(table, generator)
    generator.shuffle(found)
    with modest_effort():
        assert difference(answer(table), found) is None
        assert difference(answer(table), [(-1, *found[0][1:]), *found[1:]]) is not None
        assert difference(in_order(table), table) is None
