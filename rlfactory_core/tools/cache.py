"""Caches tool answers, in memory for one run or on disk for all runs of a machine.

A cache never makes a call fail. On disk it is one SQLite file that processes share; if it cannot be read or written,
calls go on without it. Only whole answers without a fault are kept, and never those of stateful tools.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from sys import getsizeof
from typing import Any, Protocol, TypeVar

from rlfactory_core.cache import digest
from rlfactory_core.images import NAME
from rlfactory_core.protocols import Tool
from rlfactory_core.utils.threads import BlockingPool

_log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_ANSWER_CHARS = 1 << 20  # a longer answer is not kept
_MEMORY_BYTES = 1 << 28
_DISK_BYTES = 1 << 30
_FILE = "answers-2.sqlite"  # with the version of the file's format and of the keys
_BUSY_S = 2.0  # for another process to finish its write
_DISK_DEADLINE_S = 10.0  # after which the cache is switched off


class AnswerCache(Protocol):
    """Keeps answers under the keys of `answer_key`."""

    async def get(self, key: str) -> str | None: ...

    def put(self, key: str, tool: str, content: str) -> None:
        """Keep an answer, now or soon; ``content`` has no lone surrogates."""

    async def close(self) -> None: ...


def answer_key(tool: Tool, arguments: Mapping[str, Any]) -> str | None:
    """The key of a call: the tool's name and version, and its arguments in any order.

    ``1``, ``1.0``, ``true`` and ``"1"`` are different arguments, and so are two Unicode forms of one text, because a
    tool may distinguish them. None: the arguments are not plain JSON.
    """
    try:
        _check_names(arguments)
        return digest([tool.spec.name, tool.version, json.dumps(dict(arguments), sort_keys=True)])
    except (TypeError, ValueError, RecursionError):
        return None


def _check_names(value: object) -> None:
    """Refuse names that are not strings, because JSON writes 1 and "1" alike."""
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("a name that is not a text")
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            _check_names(item)


class MemoryCache:
    """Keeps answers for the life of the manager; the least recently used ones are dropped first."""

    def __init__(self, max_bytes: int = _MEMORY_BYTES) -> None:
        self._answers: OrderedDict[str, str] = OrderedDict()
        self._max_bytes = max_bytes
        self._bytes = 0

    async def get(self, key: str) -> str | None:
        content = self._answers.get(key)
        if content is not None:
            self._answers.move_to_end(key)
        return content

    def put(self, key: str, tool: str, content: str) -> None:
        if len(content) > MAX_ANSWER_CHARS or key in self._answers:
            return
        self._answers[key] = content
        self._bytes += getsizeof(content)
        while self._bytes > self._max_bytes:
            self._bytes -= getsizeof(self._answers.popitem(last=False)[1])

    async def close(self) -> None:
        """Keeps the answers, because a closed manager may be used again."""


class DiskCache:
    """Keeps answers for all runs and processes of a machine; the oldest ones are dropped first.

    One thread does all the work, so that the event loop never waits for the disk. A damaged file is made again. If the
    file cannot be opened, read or written, calls go on without it, and one warning is logged.

    Args:
        folder: made if missing; on a local disk, because SQLite's locks do not work on most network file systems.
        max_bytes: approximate size of the file.
    """

    def __init__(self, folder: Path, max_bytes: int = _DISK_BYTES) -> None:
        self._path, self._max_bytes = folder / _FILE, max_bytes
        self._thread = BlockingPool("cache", max_threads=1)
        self._connection: sqlite3.Connection | None = None  # the thread's
        self._off = False
        self._warned = False

    async def get(self, key: str) -> str | None:
        if self._off:
            return None
        try:
            content: str | None = await asyncio.wait_for(
                self._thread.run(lambda: self._do(lambda file: _read(file, key))), _DISK_DEADLINE_S
            )
        except TimeoutError:
            self._off = True
            self._warn_once("does not answer; calls go on without it")
            return None
        return content

    def put(self, key: str, tool: str, content: str) -> None:
        # The files of images are not kept as long.
        if not self._off and len(content) <= MAX_ANSWER_CHARS and not NAME.search(content):
            self._thread.submit(lambda: self._do(lambda file: _write(file, key, tool, content, self._max_bytes)))

    async def close(self) -> None:
        """Finish the pending writes, then close the file."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._thread.run(self._disconnect), _DISK_DEADLINE_S)
        self._thread.close()

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        try:
            if self._connection is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._connection = _open(self._path)
            return work(self._connection)
        except (sqlite3.OperationalError, OSError) as error:  # busy, full, read-only
            self._warn_once(f"cannot be used ({error}); calls go on without it")
        except sqlite3.DatabaseError:
            self._warn_once("is damaged and is made anew")
            self._disconnect()
            for suffix in ("-journal", ""):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        return None

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _warn_once(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("the cache of tool answers %s %s", self._path, what)


def _open(path: Path) -> sqlite3.Connection:
    # Autocommit. The check for threads is off, because the pool may have started a new thread.
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # a file that a power cut damages is made anew
        connection.execute(
            "CREATE TABLE IF NOT EXISTS answers (key TEXT NOT NULL UNIQUE, tool TEXT NOT NULL, content TEXT NOT NULL)"
        )
    except BaseException:
        connection.close()
        raise
    return connection


def _read(file: sqlite3.Connection, key: str) -> str | None:
    row = file.execute("SELECT content FROM answers WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def _write(file: sqlite3.Connection, key: str, tool: str, content: str, max_bytes: int) -> None:
    file.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", (key, tool, content))
    pages, free, size = (
        file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    if (pages - free) * size > max_bytes:  # delete the oldest tenth; SQLite uses free pages again
        first, last = file.execute("SELECT MIN(rowid), MAX(rowid) FROM answers").fetchone()
        file.execute("DELETE FROM answers WHERE rowid <= ?", (first + (last - first) // 10,))
