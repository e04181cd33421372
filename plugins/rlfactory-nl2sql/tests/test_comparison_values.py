"""Which values are one value: the table that a reward rests on."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from rlfactory_nl2sql.comparison.compare import Comparison, answer_of, compare
from rlfactory_nl2sql.connection import Rows

NAN = math.nan
NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)

EQUAL = [
    (1, 1.0),
    (1, Decimal("1.00")),
    (1, True),
    (0, False),
    (1.0, True),
    (0.0, -0.0),
    (None, None),
    (NAN, float("nan")),
    (NAN, Decimal("NaN")),
    (math.inf, Decimal("Infinity")),
    (0.1 + 0.2, 0.3),
    (0.1 + 0.2, Decimal("0.3")),
    (Decimal("3.3333333"), Decimal("3.33333333333")),
    (100_000, 100_000.00001),
    (1e-17, 0),
    (5e300, 5.0000001e300),
    (date(2024, 5, 6), datetime(2024, 5, 6)),  # noqa: DTZ001 - databases have dates without zones
    (NOON, NOON.astimezone(timezone(timedelta(hours=2)))),
    (timedelta(hours=36), timedelta(days=1, hours=12)),
    (UUID(int=7), UUID(int=7)),
    ([1, [2.0, None]], (True, [2.0000001, None])),
    (10**400, 10**400),
]

DIFFERENT = [
    (1, "1"),
    (1, "1.0"),
    (None, 0),
    (None, ""),
    (None, "NULL"),
    (NAN, None),
    (NAN, 0.0),
    (math.inf, -math.inf),
    (math.inf, 1e308),
    (math.inf, 10**400),
    (10**400, 10**400 + 1),
    (10**400, 1e308),
    (2**53, 2**53 + 1),
    (12_345_678, 12_345_679),
    (Decimal(12_345_678), 12_345_679),
    (Decimal("12345678.00"), Decimal("12345679.00")),
    (1.0, 1.00001),
    (1e-8, 2e-8),
    (b"x", "x"),
    ("a", "A"),
    ("a", "a "),
    (date(2024, 5, 6), "2024-05-06"),
    (date(2024, 5, 6), datetime(2024, 5, 6, 1)),  # noqa: DTZ001
    (NOON, NOON.replace(tzinfo=None)),
    (time(1), timedelta(hours=1)),
    (UUID(int=7), str(UUID(int=7))),
    ([1, 2], [2, 1]),
    ([1, [2]], [1, 2]),
    ([], None),
    ([1], 1),
    ([[], [1]], [[1], []]),
]


def equal(left: Any, right: Any, tolerance: float = 1e-6) -> bool:
    """Alone in its row, which has to be the same both ways; in a list; and beside another row."""
    how = Comparison(tolerance=tolerance)
    verdicts = {
        compare(answer_of(Rows(("c",), tuple(gold)), ordered=False), Rows(("c",), tuple(found)), how) is None
        for one, other in ((left, right), (right, left))
        for gold, found in (
            ([(one,)], [(other,)]),
            ([([one],)], [([other],)]),
            ([(one,), ("beside",)], [("beside",), (other,)]),
        )
    }
    assert len(verdicts) == 1
    return verdicts.pop()


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=repr)
def test_one_value(left: Any, right: Any) -> None:
    assert equal(left, right)


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=lambda value: repr(value)[:40])
def test_different_values(left: Any, right: Any) -> None:
    assert not equal(left, right)


def test_without_tolerance_only_equal_numbers_are_equal() -> None:
    assert not equal(0.1 + 0.2, 0.3, 0.0)
    assert not equal(1e-17, 0, 0.0)
    assert equal(1.0, Decimal("1.0"), 0.0)
    assert equal(0.1, Decimal("0.1"), 0.0)
