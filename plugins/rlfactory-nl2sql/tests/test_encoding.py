"""Answers of workers: every type arrives as it was, and hostile bytes are refused."""

from __future__ import annotations

import json
import os
import pickle
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from rlfactory_nl2sql.connection import Failure, QueryError, Rows
from rlfactory_nl2sql.verification.encoding import decode, encode

VALUES: list[Any] = [
    None, True, False, 0, -1, 255, -(1 << 200), 1.5, float("inf"), "", "naïve", "\udc80", b"\x00\xff",
    Decimal("1.10"), Decimal("-Infinity"), date(2024, 2, 29), datetime(2024, 1, 2, 3, 4, 5, 6, UTC), time(1, 2, 3),
    timedelta(days=-1, microseconds=1), UUID(int=7), (), (1, (2.0, (None, "x"))), {"a": 1},
    frozenset({1, 2}), Failure.DEADLINE, Rows(("a", "b"), ((1, "x"), (None, Decimal("2")))),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_arrives_with_its_type(value: Any) -> None:
    found = decode(encode(value))
    assert (found, type(found)) == (value, type(value))


def test_an_error_arrives_with_what_it_says() -> None:
    found = decode(encode(QueryError(Failure.REFUSED, "it would write")))
    assert (type(found), found.failure, str(found)) == (QueryError, Failure.REFUSED, "it would write")


class Shell:
    def __reduce__(self) -> Any:
        return os.system, ("false",)


HOSTILE = [
    b"", b"N", encode("x")[:-1], encode(1) + b"x", b"\xff", b'{"!Decimal": "x"}', b'{"!date": 5}', b'{"!Rows": [1]}',
    b'{"!Failure": ["none"]}', b'{"!bytes": {}}', pickle.dumps(Shell()), b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_bytes_that_are_no_answer_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - with any text
        decode(data)


@pytest.mark.parametrize("name", ["system", "nearest", "eval", "Path"])
def test_an_answer_names_no_function_and_no_class_that_does_something(name: str) -> None:
    with pytest.raises(ValueError, match=f"KeyError\\('{name}'\\)"):
        decode(json.dumps({f"!{name}": ["false"]}).encode())
