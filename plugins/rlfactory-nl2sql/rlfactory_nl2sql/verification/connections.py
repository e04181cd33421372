"""A worker's state between jobs: open databases, and what was found out about them."""

from __future__ import annotations

import os
import signal
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

from rlfactory_core.errors import BackendError
from rlfactory_nl2sql.checks.constants import TableColumn
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, Rows, SessionLostError, TableRows
from rlfactory_nl2sql.databases.limiting import late
from rlfactory_nl2sql.databases.reference import DatabaseRef, connect
from rlfactory_nl2sql.instances.links import shaped_columns

_OPEN = 16
_PATIENCE_S = 1.0  # of CPU time, in which a query that is late ends by itself; a row of long calls does not
_ROWS = 200  # sampled from each table as a model for varied databases
_COPIES = 128  # sets of some 16 varied databases that a worker keeps; each database takes some 50 KiB
_COPIES_OF_SERVER = 4  # likewise; each database is a session

Content = tuple[tuple[int, int, int] | None, ...]


def content(ref: DatabaseRef) -> Content:
    """A value that changes with the database's file; empty for a server, whose changes cannot be observed."""
    return tuple(_stat(ref.location + ending) for ending in ("", "-wal")) if ref.is_file else ()


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class Closable(Protocol):
    def close(self) -> object: ...


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
C = TypeVar("C", bound=Closable)


class Recent(OrderedDict[K, T]):
    """The values used last, at most ``most``; ``drop`` gets a value that has to make room."""

    def __init__(self, most: int, drop: Callable[[T], object] = lambda _: None) -> None:
        super().__init__()
        self._most, self._drop = most, drop

    def use(self, key: K, make: Callable[[], T]) -> T:
        if key not in self:
            self[key] = make()
        self.move_to_end(key)
        while len(self) > self._most:
            self._drop(self.popitem(last=False)[1])
        return self[key]


class Database:
    """A connection, the rows sampled from it, and varied databases made of them."""

    def __init__(self, ref: DatabaseRef, limits: QueryLimits) -> None:
        self.connection: Connection = connect(ref, limits)
        self._copies: Recent[Hashable, Any] = Recent(_COPIES if ref.is_file else _COPIES_OF_SERVER, close)

    def copies(self, key: Hashable, make: Callable[[], C]) -> C:
        """What ``make`` returns, which is kept for the next jobs. It holds varied databases; `close` ends them."""
        made: C = self._copies.use(key, make)
        return made

    @cached_property
    def rows(self) -> TableRows:
        """Sampled rows of every table."""
        return self.read(_ROWS)

    def read(self, most: int) -> TableRows:
        """So many rows of every table; raises `BackendError`."""
        tables = [table.name for table in self.connection.schema().tables if not table.view]
        return {name: self.connection.read(name, most) for name in tables}

    @cached_property
    def shaped(self) -> frozenset[TableColumn]:
        """The columns of texts with a format."""
        return shaped_columns(self.connection.schema(), self.rows)

    def close(self) -> None:
        for each in (*self._copies.values(), self.connection):
            close(each)


class Clock:
    """A time budget shared by several queries."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.used = 0.0

    @property
    def left(self) -> float:
        return self._seconds - self.used

    def query(self, connection: Connection, sql: str, limits: QueryLimits, part: int = 1) -> Rows:
        """The result of a query that may take this part of the time that is left; raises `QueryError`."""
        if self.left <= 0:
            raise late(self._seconds)
        connection.used = 0.0
        signal.setitimer(signal.ITIMER_PROF, self.left + _PATIENCE_S)  # which ends the process
        try:
            return connection.query(sql, replace(limits, seconds=self.left / part))
        except QueryError as error:
            if error.failure is Failure.DEADLINE:
                raise late(self._seconds) from None
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.used += connection.used


class Connections:
    """Open databases; the least recently used are closed first.

    Attributes:
        share: of its seconds that the running job has.
    """

    share = 1.0

    def __init__(self) -> None:
        self._open: Recent[tuple[DatabaseRef, Content], Database] = Recent(_OPEN, Database.close)

    def use(self, ref: DatabaseRef, limits: QueryLimits, work: Callable[[Database], T]) -> T:
        """The result of ``work`` on a database. If a kept connection is lost, the work is repeated on a new one.

        Raises:
            QueryError: as ``work``; also if its query ended a new session while the server goes on answering.
            BackendError: the database does not answer.
            UsageError: its package is not installed, or a variable in its URL is not set.
        """
        key = (ref, content(ref))
        kept = key in self._open
        try:
            return work(self._open.use(key, lambda: Database(ref, limits)))
        except BackendError as error:
            if key in self._open:
                self._open.pop(key).close()
            if kept:
                return self.use(ref, limits, work)
            if isinstance(error, SessionLostError):
                Database(ref, limits).close()  # fails if the server is away, which is not the query's fault
                raise QueryError(Failure.ERROR, "It ended its own session with the database.") from error
            raise

    def clock(self, seconds: float) -> Clock:
        """The time of the running job's queries, which may have so many seconds."""
        return Clock(seconds * self.share)

    def close(self) -> None:
        """Close all; they are opened again when needed."""
        while self._open:
            self._open.popitem()[1].close()


def close(each: Closable) -> None:
    """Close a connection, or what holds some."""
    with suppress(BackendError):  # a lost connection is closed already
        each.close()
