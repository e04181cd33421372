"""A worker's state between jobs: open connections, and the varied databases of recent gold queries."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import Any, TypeVar

from rlfactory_core.errors import BackendError
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, SessionLostError, TableRows
from rlfactory_nl2sql.databases.opening import connect
from rlfactory_nl2sql.databases.reference import DatabaseRef

T = TypeVar("T")

_OPEN = 8
_DECODED = 128  # gold queries' answers
_FOUND = 1024  # of a database
_ROWS = 200  # sampled from each table as a model for varied databases
_VARIED = {"sqlite": 128}  # number of gold queries whose varied databases are kept, by kind; SQLite's are small
_VARIED_OTHERS = 2

Content = tuple[tuple[int, int, int] | None, ...]


def content(ref: DatabaseRef) -> Content:
    """A value that changes with the database's file; empty for a server, whose changes cannot be observed."""
    return tuple(_stat(ref.location + ending) for ending in ("", "-wal", ".wal")) if ref.is_file else ()


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class Database:
    """A connection, the rows sampled from it, and the varied databases made of them."""

    def __init__(self, ref: DatabaseRef, limits: QueryLimits) -> None:
        self.connection: Connection = connect(ref, limits)
        self._kept = _VARIED.get(ref.kind, _VARIED_OTHERS)
        self._varied: OrderedDict[str, dict[bytes, Connection]] = OrderedDict()
        self._found: OrderedDict[Hashable, Any] = OrderedDict()

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """What ``find`` returns, which is kept for the next jobs. They must not change it."""
        if key not in self._found:
            self._found[key] = find()
        self._found.move_to_end(key)
        while len(self._found) > _FOUND:
            self._found.popitem(last=False)
        found: T = self._found[key]
        return found

    def rows(self) -> TableRows:
        """Sampled rows of every table."""
        tables = [table.name for table in self.connection.schema().tables if not table.view]
        return self.once("rows", lambda: {name: self.connection.read(name, _ROWS) for name in tables})

    def varied(self, gold: str, rows: bytes) -> Connection:
        """The varied database of this gold query with these pickled rows, made if it is missing.

        Two rewards of one run may have other databases for it. Raises `BackendError` if it cannot be created.
        """
        made = self._varied.setdefault(gold, {})
        self._varied.move_to_end(gold)
        if rows not in made:
            made[rows] = self.connection.instance(pickle.loads(rows))  # noqa: S301 - from our own jobs
        while len(self._varied) > self._kept:
            _close(self._varied.popitem(last=False)[1].values())
        return made[rows]

    def close(self) -> None:
        for made in self._varied.values():
            _close(made.values())
        _close([self.connection])


class Connections:
    """Open databases; the least recently used are closed first.

    A job calls ``clock`` when its preparations are over, with the most seconds that it has from then on.
    """

    def __init__(self, clock: Callable[[float], None]) -> None:
        self.clock = clock
        self.decoded = lru_cache(_DECODED)(pickle.loads)  # what our own jobs pickled; they must not change it
        self._open: OrderedDict[tuple[DatabaseRef, Content], Database] = OrderedDict()

    def use(self, ref: DatabaseRef, limits: QueryLimits, work: Callable[[Database], T]) -> T:
        """The result of ``work`` on a database. If a kept connection is lost, the work is repeated on a new one.

        Raises:
            QueryError: as ``work``; also if its query ended a new session while the server goes on answering.
            BackendError: the database does not answer.
            UsageError: its package is not installed, or a variable in its URL is not set.
        """
        key = (ref, content(ref))
        if known := self._open.get(key):
            self._open.move_to_end(key)
            try:
                return work(known)
            except BackendError:
                self._drop(key)
        self._open[key] = fresh = Database(ref, limits)
        while len(self._open) > _OPEN:
            self._drop(next(iter(self._open)))
        try:
            return work(fresh)
        except BackendError as error:
            self._drop(key)
            if isinstance(error, SessionLostError):
                Database(ref, limits).close()  # fails if the server is away, which is not the query's fault
                raise QueryError(Failure.ERROR, "It ended its own session with the database.") from error
            raise

    def close(self) -> None:
        """Close all; they are opened again when needed."""
        for key in list(self._open):
            self._drop(key)

    def _drop(self, key: tuple[DatabaseRef, Content]) -> None:
        self._open.pop(key).close()


def _close(connections: Iterable[Connection]) -> None:
    for connection in connections:
        with contextlib.suppress(BackendError):  # a lost connection is closed already
            connection.close()
