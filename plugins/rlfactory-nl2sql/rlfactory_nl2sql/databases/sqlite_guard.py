"""The guard of SQLite statements: SQLite's authorizer, called while a statement is compiled, and SQLite's limits.

SQLite checks the time between rows, but not within a function. The length of values therefore bounds the cost of a
call: the slowest, `instr` or `replace` of a long text in a longer one, took 0.6 s at that length. Only the worker pool
can end a row made of hundreds of such calls.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Callable

from rlfactory_nl2sql.connection import quoted

Value = str | bytes | int | float | None


def replace_trim(connection: sqlite3.Connection) -> None:
    """Replace SQLite's ``trim(x, y)``, ``ltrim(x, y)`` and ``rtrim(x, y)`` by functions that take a second at most.

    SQLite's own take minutes for two texts of half a megabyte, within one call, which no deadline can end.
    """
    for name, strip in (("trim", str.strip), ("ltrim", str.lstrip), ("rtrim", str.rstrip)):

        def trimmed(value: Value, characters: Value, strip: Callable[[str, str], str] = strip) -> str | None:
            if value is None or characters is None:
                return None
            return strip(_text(value), "".join(set(_text(characters))))

        connection.create_function(name, 2, trimmed, deterministic=True)  # so that indexes may use it


def _text(value: str | bytes | float) -> str:
    """As SQLite casts it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, float):
        return str(value)
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    digits, exponent, power = format(value, ".15g").partition("e")
    return (digits if "." in digits else f"{digits}.0") + exponent + power


MAX_SQL = 100_000  # characters of one statement
MAX_VALUE = 500_000  # bytes of one value

_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)

# All built-in functions are allowed, except these. They access the process, its files or its log, or write an index.
# json_patch takes time proportional to the product of its arguments' lengths.
REFUSED_FUNCTIONS = frozenset(
    {
        "load_extension", "fts3_tokenizer", "sqlite_log", "optimize", "rtreecheck", "json_patch", "jsonb_patch",
        "readfile", "writefile", "edit", "fsdir", "lsdir", "lsmode", "zipfile",
    }
)  # fmt: skip

# These read the schema: their argument is never a new value. Full-text search uses data_version.
_SCHEMA_PRAGMAS = (
    "table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list", "index_info", "index_xinfo",
)  # fmt: skip
_ALLOWED_PRAGMAS = frozenset({*_SCHEMA_PRAGMAS, "data_version"})

_MADE_UP = ("json_each", "json_tree", *(f"pragma_{name}" for name in _SCHEMA_PRAGMAS))
_SYSTEM_TABLES = ("sqlite_master", "sqlite_temp_master", "sqlite_schema", "sqlite_temp_schema")

_WORDS = {
    sqlite3.SQLITE_INSERT: "it would write (INSERT into {0})",
    sqlite3.SQLITE_UPDATE: "it would write (UPDATE of {0})",
    sqlite3.SQLITE_DELETE: "it would write (DELETE from {0})",
    sqlite3.SQLITE_ATTACH: "it would open or write another database file",
    sqlite3.SQLITE_DETACH: "it would change which databases are open",
    sqlite3.SQLITE_PRAGMA: "PRAGMA {0} is not allowed",
    sqlite3.SQLITE_FUNCTION: "the function {1} is not allowed",
    sqlite3.SQLITE_TRANSACTION: "transactions are not allowed ({0})",
    sqlite3.SQLITE_SAVEPOINT: "transactions are not allowed (SAVEPOINT)",
}
_SCHEMA_CHANGE = "it would change the schema, or use what SQLite keeps for itself"


class Guard:
    """The authorizer of one connection. It refuses everything that is not known to only read."""

    def __init__(self) -> None:
        self.reason = ""  # why it refused the last statement; empty if it allowed it

    def __call__(self, action: int, first: str | None, second: str | None, database: str | None, by: str | None) -> int:
        """The meaning of ``first`` and ``second`` depends on the action: https://www.sqlite.org/c3ref/c_alter_table.html"""
        if action in _READS:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in REFUSED_FUNCTIONS:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in _ALLOWED_PRAGMAS:
            return sqlite3.SQLITE_OK
        if not self.reason:
            words = _SCHEMA_CHANGE if first in _SYSTEM_TABLES else _WORDS.get(action, _SCHEMA_CHANGE)
            self.reason = words.format(first, second)
        return sqlite3.SQLITE_DENY


def lock(connection: sqlite3.Connection) -> Guard:
    """Allow only reading from now on, with limits. No statement can undo it."""
    # The first use of a virtual table needs the right to change the schema, which the lock removes.
    stored = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage = 0").fetchall()
    for name in (*_MADE_UP, *(name for (name,) in stored)):
        with contextlib.suppress(sqlite3.OperationalError):  # this SQLite lacks the module; a query will report it
            connection.execute(f"PRAGMA table_info({quoted(name)})")
    replace_trim(connection)
    connection.execute("PRAGMA query_only = ON")
    for limit, most in (
        (sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 4 * MAX_SQL),
        (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 500),
        (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 500),
        (sqlite3.SQLITE_LIMIT_VDBE_OP, 250_000),
        (sqlite3.SQLITE_LIMIT_FUNCTION_ARG, 100),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 500),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
    ):
        connection.setlimit(limit, most)
    guard = Guard()
    connection.set_authorizer(guard)
    return guard
