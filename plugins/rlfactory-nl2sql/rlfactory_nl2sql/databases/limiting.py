"""Limits of a query, enforced while its result is read row by row."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from rlfactory_nl2sql.connection import Failure, QueryError, QueryLimits, Row, Rows

_NUMBER_BYTES = 8
_TEXTS, _NUMBERS = frozenset({str, bytes}), frozenset({int, float, bool, type(None)})
_FIRST_ROWS, _MOST_ROWS = 16, 256  # rows that are read before the limits are checked again
STEP = 1000  # instructions of SQLite's machine between two checks: about 10 microseconds
INSTRUCTIONS = 50_000_000  # of SQLite's machine that count as a second; usual machines need half of one
_PATIENCE = 5.0  # seconds: a busy machine takes long to stop a query, and a connection that is aborted must be reopened


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


@contextlib.contextmanager
def stopped_after(seconds: float, stop: Callable[[], None], abort: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` in another thread after ``seconds``, and some seconds later ``abort``, unless the block has ended.

    Both must be safe to call while the block waits for the database, and must not raise. Raises `MemoryError` if no
    thread can be started.
    """

    def end() -> None:
        stop()
        if not watcher.finished.wait(_PATIENCE):
            abort()

    watcher = threading.Timer(seconds, end)
    watcher.daemon = True
    try:
        watcher.start()
    except RuntimeError as error:  # earlier queries left no memory for its stack
        raise MemoryError(str(error)) from error
    try:
        yield
    finally:
        watcher.cancel()
        watcher.join()  # so that a late stop cannot hit the next query


def collect(columns: tuple[str, ...], rows: Iterable[Row], limits: QueryLimits, started: float | None) -> Rows:
    """All rows of a result, of which no more are read than the limits allow.

    Args:
        started: when the query began, by `time.monotonic`; None if the database stops it in time.

    Raises:
        QueryError: ``ROWS``, ``BYTES`` or ``DEADLINE``.
    """
    taken: list[Row] = []
    total, at_once, source = 0, _FIRST_ROWS, iter(rows)
    while chunk := list(islice(source, min(at_once, limits.rows + 1 - len(taken)))):
        taken += chunk
        if len(taken) > limits.rows:
            raise QueryError(Failure.ROWS, f"The result has more than {limits.rows:,} rows.")
        total += sum(map(_column_size, zip(*chunk, strict=True)))
        if total > limits.bytes:
            raise QueryError(Failure.BYTES, f"The result is larger than {limits.bytes:,} bytes.")
        if started is not None and time.monotonic() - started > limits.seconds:
            raise late(limits.seconds)
        at_once = min(2 * at_once, _MOST_ROWS)
    return Rows(columns, tuple(taken))


def _column_size(values: tuple[Any, ...]) -> int:
    """The approximate size of one column's values; by type, since this dominates the cost of a fast query."""
    kinds = set(map(type, values))
    if kinds <= _TEXTS:
        return sum(map(len, values))
    return _NUMBER_BYTES * len(values) if kinds <= _NUMBERS else sum(map(_size, values))


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return len(str(value)) if isinstance(value, list | tuple) else _NUMBER_BYTES


def late(seconds: float) -> QueryError:
    """The error of a query that was stopped at its deadline."""
    return QueryError(Failure.DEADLINE, f"The query took longer than {round(seconds, 2):g} s.")


def failed(kind: Failure, said: str) -> QueryError:
    """The error of a query for which the database or the guard said this."""
    if kind is Failure.MEMORY:
        said = "The query needs more memory than it may use."
    if kind is Failure.REFUSED:
        said = f"Refused: {said}. Only a query that reads is allowed."
    return QueryError(kind, said)
