"""A worker's state between jobs: open connections, and the varied databases of recent gold queries."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from rlfactory_core.errors import BackendError
from rlfactory_nl2sql.checks.constants import TableColumn
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, SessionLostError, TableRows
from rlfactory_nl2sql.databases.reference import DatabaseRef, connect
from rlfactory_nl2sql.instances.links import shaped_columns

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

PREPARE_S = 60.0  # time to connect, and to read and vary a large database
KEPT = 128  # gold queries whose answers a worker keeps
_OPEN = 8
_FOUND = 1024  # of a database
_ROWS = 200  # sampled from each table as a model for varied databases
_VARIED = 2048  # varied databases that a worker keeps; each takes some 50 KiB
_VARIED_OTHERS = 64  # likewise of a server, where these are large

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
    """A connection, the rows sampled from it, and the varied databases made of them."""

    def __init__(self, ref: DatabaseRef, limits: QueryLimits, prepare: Callable[[], object] = lambda: None) -> None:
        """``prepare`` is called before what may take long."""
        prepare()
        self._prepare = prepare
        self.connection: Connection = connect(ref, limits)
        self._varied: Recent[tuple[str, bytes], Connection] = Recent(_VARIED if ref.is_file else _VARIED_OTHERS, _close)
        self._found: Recent[Hashable, Any] = Recent(_FOUND)

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """What ``find`` returns, which is kept for the next jobs. They must not change it."""
        found: T = self._found.use(key, find)
        return found

    def rows(self) -> TableRows:
        """Sampled rows of every table."""
        return self.once("rows", self._read)

    def shaped(self) -> frozenset[TableColumn]:
        """The columns of texts with a format."""
        return self.once("shaped", lambda: shaped_columns(self.connection.schema(), self.rows()))

    def _read(self) -> TableRows:
        self._prepare()
        tables = [table.name for table in self.connection.schema().tables if not table.view]
        return {name: self.connection.read(name, _ROWS) for name in tables}

    def varied(self, gold: str, rows: bytes) -> Connection:
        """The varied database of this gold query with these pickled rows, made if it is missing.

        Raises `BackendError` if it cannot be created.
        """

        def make() -> Connection:
            self._prepare()
            return self.connection.instance(pickle.loads(rows))  # noqa: S301 - from our own jobs

        return self._varied.use((gold, rows), make)

    def close(self) -> None:
        for connection in (*self._varied.values(), self.connection):
            _close(connection)


class Connections:
    """Open databases; the least recently used are closed first.

    A job calls ``clock`` when its preparations are over, with the most seconds that it has from then on. ``on_slow`` is
    called when a query turns out to be slow by the work that it does.
    """

    prepares = False  # whether the running job may take `PREPARE_S` for preparations
    content = b""  # what came for the running job and others, once; they must not change what it holds

    def __init__(self, clock: Callable[[float], None], on_slow: Callable[[], None] = lambda: None) -> None:
        self.clock, self._on_slow = clock, on_slow
        self._decoded = lru_cache(KEPT)(pickle.loads)
        self._open: Recent[tuple[DatabaseRef, Content], Database] = Recent(_OPEN, Database.close)

    def shared(self) -> Any:
        """The object that ``content`` holds."""
        return self._decoded(self.content)

    def _prepare(self) -> None:
        if self.prepares:
            self.clock(PREPARE_S)

    def _opened(self, ref: DatabaseRef, limits: QueryLimits) -> Database:
        database = Database(ref, limits, self._prepare)
        database.connection.on_slow = self._on_slow
        return database

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
            return work(self._open.use(key, lambda: self._opened(ref, limits)))
        except BackendError as error:
            if key in self._open:
                self._open.pop(key).close()
            if kept:
                return self.use(ref, limits, work)
            if isinstance(error, SessionLostError):
                Database(ref, limits).close()  # fails if the server is away, which is not the query's fault
                raise QueryError(Failure.ERROR, "It ended its own session with the database.") from error
            raise

    def close(self) -> None:
        """Close all; they are opened again when needed."""
        while self._open:
            self._open.popitem()[1].close()


def _close(connection: Connection) -> None:
    with suppress(BackendError):  # a lost connection is closed already
        connection.close()
