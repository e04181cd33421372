"""Hostile SQL on SQLite: it ends in the right failure by the deadline, nothing is written, and the connection lives."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from effort import modest_effort
from rlfactory_nl2sql.connection import Failure, QueryError, QueryLimits
from rlfactory_nl2sql.databases.reference import connect, parse_reference
from rlfactory_nl2sql.databases.sqlite import SqliteDatabase

pytestmark = pytest.mark.slow  # seven seconds in all

SECONDS = 0.3

FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
LONG = "hex(zeroblob(249000))"
HALF = "hex(zeroblob(125000)) || '1'"


def nested(before: str, inner: str, after: str, depth: int) -> str:
    return "SELECT " + before * depth + inner + after * depth


def doubling(depth: int) -> str:
    """Common tables that each name the one before twice: 2 ** depth copies while SQLite compiles."""
    tables = [f"a{i} AS (SELECT l.x FROM a{i - 1} l, a{i - 1} r)" for i in range(1, depth)]
    return f"WITH a0 AS (SELECT 1 AS x), {', '.join(tables)} SELECT count(*) FROM a{depth - 1}"


TOO_SLOW = {
    "endless recursion": FOREVER + "SELECT max(i) FROM n",
    "endless recursion with long values": FOREVER + "SELECT sum(length(hex(zeroblob(200000 + i % 2)))) FROM n",
    "growing set": "WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n) SELECT max(i) FROM n",
    "cross join": "SELECT count(*) FROM t a, t b, t c, t d WHERE a.b || b.b || c.b || d.b = ''",
    "cross join, sorted": "SELECT a.a FROM t a, t b, t c ORDER BY random()",
    "cross join, numbered": "SELECT a.a, row_number() OVER (ORDER BY random()) FROM t a, t b, t c LIMIT 1",
    "cross join, grouped": "SELECT a.b || b.b || c.b, count(*) FROM t a, t b, t c GROUP BY 1",
    "correlated": "SELECT count(*) FROM t a WHERE (SELECT count(*) FROM t b, t c WHERE b.a <> a.a AND c.b <> b.b) < 0",
    "no row ever": FOREVER + "SELECT i FROM n WHERE i < 0",
    "like, again and again": FOREVER + "SELECT count(*) FROM n WHERE hex(zeroblob(200000 + i % 2)) LIKE '%1%1'",
}

REFUSED = {
    "INSERT INTO t VALUES (1, 'x')": "INSERT into t",
    "REPLACE INTO t VALUES (1, 'x')": "INSERT into t",
    "UPDATE t SET b = 'x'": "UPDATE of t",
    "DELETE FROM t": "DELETE from t",
    "DELETE FROM t RETURNING a": "DELETE from t",
    "WITH x AS (SELECT 1) DELETE FROM t": "DELETE from t",
    "WITH x AS (SELECT 1) INSERT INTO t SELECT 5, 'x' FROM x": "INSERT into t",
    "EXPLAIN DELETE FROM t": "DELETE from t",
    "DROP TABLE t": "schema",
    "ALTER TABLE t RENAME TO u": "schema",
    "CREATE TABLE u (a)": "schema",
    "CREATE TEMP TABLE u (a)": "schema",
    "CREATE TEMP TABLE u AS SELECT * FROM t": "schema",
    "CREATE TEMP VIEW u AS SELECT 1": "schema",
    "CREATE TEMP TRIGGER u AFTER INSERT ON t BEGIN SELECT 1; END": "schema",
    "CREATE VIRTUAL TABLE u USING fts5(a)": "schema",
    "REINDEX": "schema",
    "ANALYZE": "schema",
    "ATTACH '{folder}/new.sqlite' AS other": "another database file",
    "ATTACH ':memory:' AS other": "another database file",
    "ATTACH 'file:{folder}/new.sqlite?mode=rwc' AS other": "another database file",
    "DETACH main": "which databases",
    "VACUUM": "another database file",
    "VACUUM INTO '{folder}/new.sqlite'": "another database file",
    "PRAGMA writable_schema = ON": "PRAGMA writable_schema",
    "PRAGMA query_only = OFF": "PRAGMA query_only",
    "PRAGMA journal_mode = WAL": "PRAGMA journal_mode",
    "PRAGMA hard_heap_limit = 0": "PRAGMA hard_heap_limit",
    "PRAGMA temp_store_directory = '{folder}'": "PRAGMA temp_store_directory",
    "PRAGMA user_version = 7": "PRAGMA user_version",
    "PRAGMA database_list": "PRAGMA database_list",
    "SELECT load_extension('{folder}/evil.so')": "load_extension",
    "SELECT LOAD_EXTENSION('evil', 'start')": "load_extension",
    "SELECT fts3_tokenizer('simple')": "fts3_tokenizer",
    "SELECT json_patch('{{}}', '{{}}')": "json_patch",
    "BEGIN": "transactions",
    "BEGIN IMMEDIATE": "transactions",
    "COMMIT": "transactions",
    "SAVEPOINT s": "transactions",
    "SELECT 1; DELETE FROM t": "more than one statement",
    "SELECT 1; SELECT 2": "more than one statement",
}

TOO_BIG = {
    "zeroblob": "SELECT zeroblob(1000000000)",
    "randomblob": "SELECT length(randomblob(2147483647))",
    "hex": "SELECT hex(zeroblob(400000))",
    "replace": "SELECT length(replace(hex(zeroblob(100000)), '0', 'aaaaaaaaaa'))",
    "group_concat": "SELECT length(group_concat(b)) FROM (SELECT a.b FROM t a, t b LIMIT 60000)",
    "json": "SELECT length(json_group_array(b)) FROM (SELECT a.b FROM t a, t b LIMIT 60000)",
    "doubling": "WITH RECURSIVE n(s) AS (SELECT 'ab' UNION ALL SELECT s || s FROM n) SELECT max(length(s)) FROM n",
    "quote": "SELECT quote(zeroblob(300000))",
    "many long rows": "SELECT hex(zeroblob(100000)) FROM t",
    "many long columns": "SELECT " + ", ".join(["hex(zeroblob(100000))"] * 200),
}

ERRORS = {
    "10 MB of SQL": "SELECT '" + "x" * 10_000_000 + "'",
    "10 MB of spaces": "SELECT" + " " * 10_000_000 + "1",
    "100,000 parentheses": nested("(", "1", ")", 100_000),
    "subqueries": nested("(SELECT ", "1", ")", 10_000),
    "NOT": nested("NOT ", "1", "", 24_000),
    "minus": nested("- ", "1", "", 49_000),
    "sum": nested("1 + ", "1", "", 24_000),
    "CASE": nested("CASE 1 WHEN 1 THEN ", "1", " END", 4_000),
    "functions": nested("abs(", "1", ")", 19_000),
    "UNION": " UNION ".join(["SELECT 1"] * 6_000),
    "columns": "SELECT " + ", ".join(["1"] * 30_000),
    "arguments": "SELECT max(" + ", ".join(["1"] * 30_000) + ")",
    "star of stars": "SELECT " + ", ".join(["t.*"] * 15_000) + " FROM t",
    "tables": "SELECT count(*) FROM " + ", ".join(f"t t{i}" for i in range(2_000)),
    "long pattern": "SELECT 'a' GLOB '" + "*[a-z]" * 10_000 + "'",
    "unterminated string": "SELECT '" + "x" * 90_000,
    "unterminated comment": "SELECT /*" + "x" * 90_000,
    "NUL": "SELECT 1\0; DELETE FROM t",
    "lone surrogate": "SELECT '\udc80'",
    "endless view of itself": "WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM a",
    "parameters": "SELECT ?1, :a, @b",
    "the schema's own table": "UPDATE sqlite_master SET sql = ''",
}

# An error, or an answer: SQLite grows less strict about these from release to release.
HARMLESS = {
    "parentheses": nested("(", "1", ")", 49_000),
    "subqueries in FROM": "SELECT max(a) FROM " + "(SELECT * FROM " * 6_000 + "t" + ")" * 6_000,
    "doubling tables": doubling(8),
    "tables that SQLite makes up": "SELECT * FROM pragma_database_list",
    "a table that would write": "SELECT * FROM pragma_user_version(7)",
    "a table that would write a mode": "SELECT * FROM pragma_journal_mode('WAL')",
    "statistics": "SELECT * FROM dbstat",
    "statements": "SELECT * FROM sqlite_stmt",
    "pages": "SELECT * FROM sqlite_dbpage",
    "a file as a table": "SELECT * FROM readfile('/etc/passwd'), fsdir('/etc')",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "hostile.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        connection.execute("CREATE UNIQUE INDEX i ON t (b)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", ((i, f"some text {i}") for i in range(2000)))
    return path


@pytest.fixture
def db(path: Path) -> Iterator[SqliteDatabase]:
    """Its file, and the folder it is in, are as before when the test is over."""
    before = path.read_bytes()
    with closing(connect(parse_reference(path), QueryLimits())) as connection:
        assert isinstance(connection, SqliteDatabase)
        yield connection
        assert connection.query("SELECT count(*) FROM t", QueryLimits()).rows == ((2000,),)
        with closing(connection.instance({"t": [(1, "x")]})) as instance:
            assert instance.query("SELECT b FROM t", QueryLimits()).rows == (("x",),)
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(before).digest()
    assert [file.name for file in path.parent.iterdir() if file.is_file()] == [path.name]


def attempt(db: SqliteDatabase, sql: str, seconds: float = 10) -> QueryError:
    with pytest.raises(QueryError) as caught, modest_effort():
        db.query(sql, QueryLimits(seconds=seconds))
    return caught.value


@pytest.mark.parametrize("name", TOO_SLOW)
def test_slow_queries_end_at_the_deadline(name: str, db: SqliteDatabase) -> None:
    assert attempt(db, TOO_SLOW[name], SECONDS).failure is Failure.DEADLINE


@pytest.mark.parametrize("sql", REFUSED)
def test_whatever_does_not_only_read_is_refused(sql: str, db: SqliteDatabase, tmp_path: Path) -> None:
    statement = sql.format(folder=tmp_path)
    error = attempt(db, statement)
    assert (error.failure, REFUSED[sql] in str(error)) == (Failure.REFUSED, True), error
    with closing(db.instance({})) as instance:  # in memory there is no file that is opened to read only
        assert attempt(instance, statement).failure is Failure.REFUSED


@pytest.mark.parametrize("name", TOO_BIG)
def test_values_that_are_too_big_are_never_made(name: str, db: SqliteDatabase) -> None:
    assert attempt(db, TOO_BIG[name]).failure is Failure.BYTES


@pytest.mark.parametrize("name", ERRORS)
def test_monstrous_sql_is_an_error_at_once(name: str, db: SqliteDatabase) -> None:
    error = attempt(db, ERRORS[name])
    assert error.failure is Failure.ERROR
    assert len(str(error)) < 1_000


@pytest.mark.parametrize("name", HARMLESS)
def test_what_sqlite_may_answer_does_no_harm(name: str, db: SqliteDatabase, path: Path) -> None:
    try:
        with modest_effort():
            said = str(db.query(HARMLESS[name], QueryLimits()))
    except QueryError as error:
        said = str(error)
    assert "root:" not in said
    assert str(path) not in said


def test_rows_without_end_are_counted(db: SqliteDatabase) -> None:
    assert attempt(db, FOREVER + "SELECT i FROM n").failure is Failure.ROWS


@pytest.mark.parametrize(
    "expression",
    [
        f"instr({LONG}, {HALF})",
        f"length(replace({LONG}, {HALF}, 'x'))",
        f"{LONG} LIKE '%' || substr({HALF}, -499)",
        f"{LONG} GLOB '*[' || substr({HALF}, -497) || ']'",
        f"length(trim({LONG}, {HALF}))",
        f"length(ltrim({LONG}, replace({HALF}, '0', '2') || '0'))",
        f"length(rtrim({LONG}, replace({HALF}, '0', '2') || '0'))",
        "length(printf('%1000000000d', 1))",
        "length(printf('%.100000000f', 1.5))",
    ],
)
def test_one_call_on_the_longest_values_is_soon_over(expression: str, db: SqliteDatabase) -> None:
    """SQLite cannot be interrupted within one call: the length of its values bounds it."""
    with modest_effort():
        db.query(f"SELECT {expression}", QueryLimits(seconds=60))


PAIRS = "SELECT a.b || b.b AS x FROM t a, t b LIMIT 160000"
NUMBERED = f"SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY random()) AS n FROM ({PAIRS}))"

CONFINED = """
import resource, sys
most = int(sys.argv[2]) << 20
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
from rlfactory_nl2sql.connection import QueryError, QueryLimits
from rlfactory_nl2sql.databases.reference import connect
from rlfactory_nl2sql.databases.reference import parse_reference

limits = QueryLimits(seconds=60, memory_mb=48)
db = connect(parse_reference(sys.argv[1]), limits)
for sql in sys.argv[3:]:
    try:
        print(db.query(sql, limits).rows)
    except QueryError as error:
        print(error.failure.value)
print(db.query("SELECT count(*) FROM t", limits).rows)
"""


def confined(path: Path, file_mb: int, *statements: str) -> list[str]:
    """What each statement gives in a process of its own, as the limits hold for a whole process."""
    command = [sys.executable, "-c", CONFINED, str(path), str(file_mb), *statements]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.splitlines()


@pytest.mark.slow
def test_memory_and_temporary_files_have_a_limit_too(path: Path) -> None:
    before = path.read_bytes()
    said = confined(
        path,
        64,
        doubling(40),
        "SELECT " + ", ".join(["zeroblob(400000)"] * 1_500),
        "SELECT count(*) FROM (SELECT a.b || b.b AS x, randomblob(200) FROM t a, t b ORDER BY 2)",
        "SELECT count(*) FROM (SELECT DISTINCT hex(randomblob(200)) FROM t a, t b)",
        NUMBERED,
    )
    assert said == [*["memory"] * 4, "((160000,),)", "((2000,),)"]
    assert path.read_bytes() == before


def test_where_no_file_may_be_written_sorting_stays_in_memory(path: Path) -> None:
    assert confined(path, 1, NUMBERED)[0] == "((160000,),)"
