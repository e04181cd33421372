"""Limits of a query, enforced while its result is read row by row."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable
from itertools import islice

from rlfactory_nl2sql.connection import Failure, QueryError, QueryLimits, Row, Rows

_AT_ONCE = 32  # rows that are read before the limits are checked again
STEP = 1000  # instructions of SQLite's machine between two checks: about 10 microseconds
INSTRUCTIONS = 50_000_000  # of SQLite's machine that count as a second; usual machines need half of one


class Budget:
    """What a query in SQLite may do, which calls `over` after every `STEP` instructions.

    Its instructions count, so that the same query has the same verdict on any machine, however busy. CPU time counts
    as well, since one instruction may be a call of a function on a long value.
    """

    def __init__(self, seconds: float) -> None:
        self._calls, self._most = 0, seconds * INSTRUCTIONS / STEP
        self._began, self._seconds = time.thread_time(), seconds

    def over(self) -> bool:
        """Whether it is late."""
        self._calls += 1
        return self._calls > self._most or time.thread_time() - self._began > self._seconds

    @property
    def used(self) -> float:
        """The seconds that it has used."""
        return max(time.thread_time() - self._began, self._calls * STEP / INSTRUCTIONS)


def collect(columns: tuple[str, ...], rows: Iterable[Row], limits: QueryLimits, started: float | None) -> Rows:
    """All rows of a result, of which no more are read than the limits allow.

    Args:
        started: when the query began, by `time.monotonic`; None if the database stops it in time.

    Raises:
        QueryError: ``ROWS``, ``BYTES`` or ``DEADLINE``.
    """
    taken: list[Row] = []
    size, source = 0, iter(rows)
    while chunk := list(islice(source, min(_AT_ONCE, limits.rows + 1 - len(taken)))):
        taken += chunk
        size += len(pickle.dumps(chunk))  # nearly that of its values, and fast
        if len(taken) > limits.rows:
            raise QueryError(Failure.ROWS, f"The result has more than {limits.rows:,} rows.")
        if size > limits.bytes:
            raise QueryError(Failure.BYTES, f"The result is larger than {limits.bytes:,} bytes.")
        if started is not None and time.monotonic() - started > limits.seconds:
            raise late(limits.seconds)
    return Rows(columns, tuple(taken))


def late(seconds: float) -> QueryError:
    """The error of a query that was stopped at its deadline."""
    return QueryError(Failure.DEADLINE, f"The query took longer than {round(seconds, 2):g} s.")


def failed(kind: Failure, reason: str) -> QueryError:
    """The error of a query with the reason of the database or the guard."""
    if kind is Failure.MEMORY:
        reason = "The query needs more memory than it may use."
    if kind is Failure.REFUSED:
        reason = f"Refused: {reason}. Only a query that reads is allowed."
    return QueryError(kind, reason)
