"""Every verdict on small tables against a reference that tries out all orders of rows and columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from itertools import accumulate, pairwise, permutations, product
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlfactory_nl2sql.comparison.compare import Answer, Comparison, Semantics, compare
from rlfactory_nl2sql.connection import Rows

TOLERANCE = 1e-6
SENSES = [Comparison(semantics, TOLERANCE) for semantics in get_args(Semantics)]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list) or isinstance(right, list):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    kinds = [(float, Decimal, int), (str,), (bytes,), (datetime, date), (type(None),)]
    if next(n for n, kind in enumerate(kinds) if isinstance(left, kind)) != next(
        n for n, kind in enumerate(kinds) if isinstance(right, kind)
    ):
        return False
    if isinstance(left, date):
        return f"{left} 00:00:00"[:19] == f"{right} 00:00:00"[:19]
    if not isinstance(left, (float, Decimal, int)):
        return bool(left == right)
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    exact = any(isinstance(side, int) or (isinstance(side, Decimal) and side == int(side)) for side in (left, right))
    if exact and all(math.isfinite(side) and side == int(side) for side in (left, right)):
        return int(left) == int(right)
    return left == right or math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE / 1000)


def ties(answer: Answer) -> list[tuple[tuple[Any, ...], ...]]:
    return [answer.result.rows[start:end] for start, end in pairwise((0, *answer.ends))]


def sequences(answer: Answer, how: Comparison) -> Iterator[list[tuple[Any, ...]]]:
    """Every order of rows that the answer allows; as sets, one."""
    if how.semantics == "set":
        yield list(answer.result.rows)
        return
    for parts in product(*map(permutations, ties(answer))):
        yield [row for part in parts for row in part]


def equal(answer: Answer, rows: Rows, how: Comparison) -> bool:
    wanted, number = len(answer.result.columns), len(rows.columns)
    if number != wanted:
        return False
    orders = permutations(range(number), wanted) if how.semantics == "test-suite" else [range(wanted)]
    for order in orders:
        result = [tuple(row[column] for column in order) for row in rows.rows]
        for sequence in sequences(answer, how):
            if how.semantics == "set":
                if all(any(all(map(same, a, b)) for b in sequence) for a in result) and all(
                    any(all(map(same, a, b)) for b in result) for a in sequence
                ):
                    return True
            elif len(sequence) == len(result) and all(
                all(map(same, *pair)) for pair in zip(sequence, result, strict=True)
            ):
                return True
    return False


FEW = st.sampled_from([0, 1, 2, None, "a"])
NEAR = st.sampled_from([1, 1.0, 1 + 6e-7, 1 + 1.2e-6, 1 + 1.8e-6, Decimal("1.0000004"), Decimal(1), 2])
EVEN_NEARER = st.sampled_from([1.0, 1 + 6e-7, 1 + 1.2e-6, 1 + 1.8e-6, 1 + 2.4e-6])
DAY = date(2024, 1, 2)
MANY = st.one_of(
    st.sampled_from([True, 0, -0.0, 2**53, 2**53 + 1, float(2**53), "1", b"1", None, 3e-10, -3e-10, Decimal("0.5")]),
    st.sampled_from([math.nan, math.inf, -math.inf, Decimal("NaN")]),
    st.sampled_from([DAY, datetime.combine(DAY, time(0)), datetime.combine(DAY, time(5))]),
    st.sampled_from([[1], [1, None], [1.0000004, None], [[0.5]], [[0.50000001]]]),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Answer, Rows]:
    """An answer and a result that was made from it, and that may have been changed."""
    columns = draw(st.integers(1, 3))
    values = [draw(st.sampled_from([FEW, NEAR, EVEN_NEARER, MANY])) for _ in range(columns)]
    row = st.tuples(*values)
    sizes = draw(st.sampled_from([(1,), (2,), (3,), (4,), (5,), (1, 1), (2, 2), (1, 3), (3, 2), (1, 2, 1), (2, 1, 2)]))
    made = tuple(draw(st.lists(row, min_size=sum(sizes), max_size=sum(sizes))))
    answer = Answer(Rows(tuple(f"c{n}" for n in range(columns)), made), tuple(accumulate(sizes)))
    result = [list(one) for tie in ties(answer) for one in draw(st.permutations(tie))]
    if draw(st.booleans()):
        result = draw(st.permutations(result))
    for _ in range(draw(st.integers(0, 2))):
        one = draw(st.sampled_from(result))
        column = draw(st.integers(0, columns - 1))
        one[column] = draw(values[column])
    if draw(st.integers(0, 5)) == 0:
        result = result[:-1]
    order = draw(st.permutations(range(columns)))
    extra = draw(st.integers(0, 1))
    result = [[one[column] for column in order] + [draw(FEW)] * extra for one in result]
    return answer, Rows(tuple(f"r{n}" for n in range(columns + extra)), tuple(map(tuple, result)))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(tables(), st.sampled_from(SENSES))
def test_every_verdict_is_that_of_trying_everything(case: tuple[Answer, Rows], how: Comparison) -> None:
    answer, rows = case
    reason = compare(answer, rows, how)
    if reason is None or not is_dense(answer, rows):
        assert (reason is None) == equal(answer, rows, how), reason


def is_dense(answer: Answer, rows: Rows) -> bool:
    """Whether a number is near two others that are not the same: then only the closest count as equal."""
    values = {value for row in (*answer.result.rows, *rows.rows) for value in numbers(row)}
    return any(
        same(one, other) and same(other, third) and not same(one, third)
        for one, other, third in product(values, repeat=3)
    )


def numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, int | float | Decimal):
        yield value
