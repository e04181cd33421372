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
SLOW = 0.05  # share of its seconds after which a query is slow
STEP = 500  # instructions of SQLite's machine between two checks: about 5 microseconds
INSTRUCTIONS = 50_000_000  # of SQLite's machine that count as a second; usual machines need half of one
_PATIENCE = 5.0  # seconds: a busy machine takes long to stop a query, and a connection that is aborted must be reopened


class Deadline:
    """The end of a query that runs in this thread, and that calls `over` after every `STEP` instructions.

    What counts is the work done: it is late when its instructions are as many as its seconds allow. So the same query
    has the same verdict on a busy machine. The clock is a backstop: it is also late when its seconds are over and it
    has had a share of them in CPU time, or after ``limits.patience`` times its seconds, for one that waits.

    Args:
        on_slow: called when it has done `SLOW` of the work that it may do.
    """

    def __init__(self, limits: QueryLimits, on_slow: Callable[[], None] = lambda: None) -> None:
        self._limits, self._on_slow, self._calls = limits, on_slow, 0
        self._most = limits.seconds * INSTRUCTIONS / STEP
        self._next = SLOW * self._most  # calls after which something is to be done
        self._sure, self._cpu = limits.cpu_share * limits.seconds, time.thread_time()
        self._began = time.monotonic()
        self._look = self._began + self._sure  # it cannot have had more CPU time than time

    def over(self) -> bool:
        """Whether it is late."""
        self._calls += 1
        if self._calls >= self._next:
            if self._calls >= self._most:
                return True
            self._next = self._most
            self._on_slow()
        now = time.monotonic()
        if now < self._look:
            return False
        missing = self._sure - (time.thread_time() - self._cpu)
        if missing > 0:
            self._look = now + missing
            return now - self._began >= self._limits.patience * self._limits.seconds
        self._look = self._began + self._limits.seconds
        return now >= self._look

    @property
    def used(self) -> float:
        """The seconds that count."""
        return max(time.thread_time() - self._cpu, self._calls * STEP / INSTRUCTIONS)


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
