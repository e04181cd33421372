"""SQLite files: what queries give, what the schema tells, and varied copies in memory."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rlfactory_nl2sql.connection import Failure, QueryError, QueryLimits, Rows
from rlfactory_nl2sql.databases import limiting
from rlfactory_nl2sql.databases.reference import connect, parse_reference
from rlfactory_nl2sql.databases.sqlite import SqliteDatabase
from rlfactory_nl2sql.databases.sqlite_guard import replace_trim
from rlfactory_nl2sql.schema import Column, ForeignKey

from rlfactory_core.errors import BackendError

LIMITS = QueryLimits()

ODD = """
CREATE TABLE author (first TEXT, last TEXT, born INT, PRIMARY KEY (last, first));
CREATE TABLE "order" (
    "the id" INTEGER PRIMARY KEY AUTOINCREMENT,
    "a""b" TEXT COLLATE NOCASE UNIQUE,
    price REAL NOT NULL CHECK (price > 0),
    total REAL GENERATED ALWAYS AS (price * 2) STORED,
    half REAL AS (price / 2),
    first TEXT, last TEXT,
    boss INT REFERENCES "ORDER",
    lost INT REFERENCES nowhere (id),
    FOREIGN KEY (last, first) REFERENCES Author
);
CREATE UNIQUE INDEX once ON "order" (first, price);
CREATE UNIQUE INDEX partly ON "order" (last) WHERE price > 10;
CREATE UNIQUE INDEX computed ON "order" (lower(last) || price);
CREATE INDEX plain ON "order" (price);
CREATE TABLE tag (word TEXT PRIMARY KEY, uses INT UNIQUE) WITHOUT ROWID;
CREATE VIEW dear AS SELECT "the id", price FROM "order" WHERE price > 10;
CREATE VIEW broken AS SELECT * FROM gone;
CREATE TRIGGER watch AFTER INSERT ON tag BEGIN DELETE FROM author; END;
INSERT INTO author VALUES ('Ada', 'Lovelace', 1815);
INSERT INTO "order" ("the id", "a""b", price, first, last) VALUES (7, 'x', 12.5, 'Ada', 'Lovelace');
"""


def opened(path: Path) -> SqliteDatabase:
    connection = connect(parse_reference(path), LIMITS)
    assert isinstance(connection, SqliteDatabase)
    return connection


@pytest.fixture
def db(shops: Path) -> Iterator[SqliteDatabase]:
    with closing(opened(shops)) as connection:
        yield connection


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[SqliteDatabase]:
    path = tmp_path / "odd #1?%41.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ODD)
    with closing(opened(path)) as connection:
        yield connection


def failure(connection: SqliteDatabase, sql: str, limits: QueryLimits = LIMITS) -> QueryError:
    with pytest.raises(QueryError) as caught:
        connection.query(sql, limits)
    return caught.value


def test_a_query_gives_columns_and_rows_as_sqlite_has_them(db: SqliteDatabase) -> None:
    sql = "SELECT name, sales AS Sales, sales IS NULL FROM shop WHERE city_id < 3 ORDER BY id"
    assert db.query(sql, LIMITS) == Rows(
        ("name", "Sales", "sales IS NULL"), (("Fjord", 10.5, 0), ("Nord", 7.0, 0), ("Regn", None, 1))
    )
    assert db.query("SELECT -9223372036854775808, x'00ff', 1e400", LIMITS).rows == (
        (-(2**63), b"\0\xff", float("inf")),
    )
    assert db.query("SELECT name FROM shop WHERE 0", LIMITS) == Rows(("name",), ())
    assert db.query("VALUES (1), (2)", LIMITS).rows == ((1,), (2,))


def test_text_that_is_no_utf_8_stays_distinct(db: SqliteDatabase) -> None:
    ((first, second),) = db.query("SELECT CAST(x'61ff' AS TEXT), CAST(x'61fe' AS TEXT)", LIMITS).rows
    assert first != second
    assert first.encode("utf-8", "surrogateescape") == b"a\xff"


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT * FROM shopp", "no such table: shopp. Did you mean 'shop'?"),
        ("SELECT s.nme FROM shop s", "no such column: s.nme. Did you mean 'name'?"),
        ("SELECT zzzzzz FROM shop", "no such column: zzzzzz"),
        ("SELEC 1", 'near "SELEC": syntax error'),
        ("SELECT ?", "bindings"),
        ("SELECT json_extract('{', '$')", "malformed JSON"),
        ("", "not a query"),
        (" -- nothing", "not a query"),
        ("SELECT '\0'", "NUL"),
        ("SELECT '\ud800'", "half of a character"),
    ],
)
def test_an_error_says_what_is_wrong(db: SqliteDatabase, sql: str, says: str) -> None:
    error = failure(db, sql)
    assert error.failure is Failure.ERROR
    assert says in str(error)


def test_limits_of_rows_bytes_and_time(db: SqliteDatabase) -> None:
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {}) SELECT i FROM n"
    limits = QueryLimits(seconds=60.0, rows=100, bytes=8_000)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"

    assert len(db.query(rows.format(100), limits).rows) == 100
    assert failure(db, rows.format(101), limits).failure is Failure.ROWS
    assert failure(db, "SELECT hex(zeroblob(4001))", limits).failure is Failure.BYTES
    late = failure(db, endless, replace(limits, seconds=0.1))
    assert (late.failure, "longer than 0.1 s" in str(late)) == (Failure.DEADLINE, True)
    assert db.query("SELECT 1", limits).rows == ((1,),)


def test_the_schema_of_odd_tables(odd: SqliteDatabase) -> None:
    schema = odd.schema()
    author, order, tag, dear = schema.tables

    assert author.primary_key == ("last", "first")
    assert order.name == "order"
    assert [column.name for column in order.columns][:5] == ["the id", 'a"b', "price", "total", "half"]
    assert order.columns[2] == Column("price", "REAL", nullable=False)
    assert order.primary_key == ("the id",)
    assert order.foreign_keys == (
        ForeignKey(("boss",), "order", ("the id",)),
        ForeignKey(("last", "first"), "author", ("last", "first")),
    )
    assert order.unique == (('a"b',), ("first", "price"))
    assert (tag.primary_key, tag.unique) == (("word",), (("uses",),))
    assert (dear.view, [column.name for column in dear.columns]) == (True, ["the id", "price"])


def test_an_instance_has_the_schema_and_only_the_given_rows(odd: SqliteDatabase) -> None:
    order = odd.read("order", 10)
    changed = (*order[0][:2], 99.0, *order[0][3:])
    with closing(odd.instance({"order": [changed], "tag": [("a", 1), ("b", 2)]})) as instance:
        assert instance.schema() == odd.schema()
        assert instance.query('SELECT price, total, half FROM "order"', LIMITS).rows == ((99.0, 198.0, 49.5),)
        assert instance.query("SELECT * FROM dear", LIMITS).rows == ((7, 99.0),)
        assert instance.query("SELECT count(*) FROM author", LIMITS).rows == ((0,),)
        assert instance.query("SELECT word FROM tag", LIMITS).rows == (("a",), ("b",))
        assert failure(instance, "DELETE FROM tag").failure is Failure.REFUSED
        with closing(instance.instance({"tag": [("c", 3)]})) as again:
            assert again.query("SELECT word FROM tag", LIMITS).rows == (("c",),)
    assert odd.query('SELECT price FROM "order"', LIMITS).rows == ((12.5,),)


def test_an_instance_keeps_out_what_the_database_could_not_hold(odd: SqliteDatabase) -> None:
    free = (None,) * 5  # total, half, first, last, boss
    rows = [(1, "x", 1.0, *free, None), (2, "X", 1.0, *free, None), (3, "y", -1.0, *free, None)]
    with closing(odd.instance({"order": rows})) as instance:
        assert instance.query('SELECT "the id" FROM "order"', LIMITS).rows == ((1,), (3,))  # NOCASE; a CHECK may break
    with pytest.raises(BackendError, match="no table 'orders'"):
        odd.instance({"orders": []})
    with pytest.raises(BackendError, match="cannot be made"):
        odd.instance({"author": [("a", "b", 2**64)]})


def test_instances_take_rows_with_text_that_is_no_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "latin.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.execute("INSERT INTO t VALUES ('x', 1), (CAST(x'e9' AS TEXT), 2)")
    with closing(opened(path)) as db, closing(db.instance({"t": db.read("t", 5)})) as instance:
        assert [b for _, b in instance.query("SELECT a, b FROM t", LIMITS).rows] == [1, 2]


def test_full_text_search_works_and_is_empty_in_an_instance(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        try:
            connection.executescript(
                "CREATE VIRTUAL TABLE note USING fts5(body); INSERT INTO note VALUES ('a red fox'), ('a dog');"
                "CREATE VIRTUAL TABLE box USING rtree(id, low, high); INSERT INTO box VALUES (1, 2, 3);"
                "CREATE TABLE note_plain (a); INSERT INTO note_plain VALUES (1);"
            )
        except sqlite3.OperationalError as error:
            pytest.skip(f"this SQLite has no virtual tables of that kind: {error}")
    with closing(opened(path)) as db:
        assert [table.name for table in db.schema().tables] == ["note", "box", "note_plain"]
        assert db.query("SELECT body FROM note WHERE note MATCH 'fox'", LIMITS).rows == (("a red fox",),)
        assert db.query("SELECT id FROM box WHERE low > 1", LIMITS).rows == ((1,),)
        assert failure(db, "INSERT INTO note(note) VALUES ('optimize')").failure is Failure.REFUSED
        with closing(db.instance({"note_plain": [(2,)]})) as instance:
            assert instance.query("SELECT body FROM note WHERE note MATCH 'fox'", LIMITS).rows == ()
            assert instance.query("SELECT a FROM note_plain", LIMITS).rows == ((2,),)


def test_json_and_the_schemas_own_tables_can_be_queried(db: SqliteDatabase) -> None:
    assert db.query("SELECT value FROM json_each('[1, 2]')", LIMITS).rows == ((1,), (2,))
    assert db.query("PRAGMA table_info(city)", LIMITS).rows[0][1] == "id"
    assert db.query("SELECT name FROM pragma_table_info('city')", LIMITS).rows == (("id",), ("name",), ("country",))
    assert ("shop",) in db.query("SELECT name FROM sqlite_master", LIMITS).rows
    assert db.query("EXPLAIN QUERY PLAN SELECT * FROM shop", LIMITS).rows


def write_numbers(path: Path, *, options: str = "", key: str = "INTEGER PRIMARY KEY") -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE t (i {key}, rowid TEXT) {options}")
        connection.executemany("INSERT INTO t VALUES (?, 'x')", ((i,) for i in range(1000)))
        connection.execute("INSERT INTO t VALUES (1000000000, 'far')")
        connection.execute("CREATE VIEW v AS SELECT i FROM t")


@pytest.mark.parametrize(
    ("options", "key"), [("", "INTEGER PRIMARY KEY"), ("", "INT"), ("WITHOUT ROWID", "INT PRIMARY KEY")]
)
def test_read_spreads_over_the_table_and_is_the_same_each_time(options: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "numbers.sqlite"
    write_numbers(path, options=options, key=key)
    with closing(opened(path)) as db:
        assert len(db.read("T", 2000)) == 1001
        for table in ("t", "v"):
            rows = db.read(table, 50)
            numbers = [row[0] for row in rows]
            assert len(set(numbers)) == len(numbers) <= 50
            assert len(numbers) >= 48
            assert db.read(table, 50) == rows
        if key == "INT":
            assert numbers[-1] > 900


def test_long_values_are_read_in_part_and_refused_in_queries(tmp_path: Path) -> None:
    path = tmp_path / "long.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.execute("INSERT INTO t VALUES (1, zeroblob(2000000))")
    with closing(opened(path)) as db:
        assert db.query("SELECT a, length(b) FROM t", LIMITS).rows == ((1, 2_000_000),)
        assert [(a, len(b)) for a, b in db.read("t", 5)] == [(1, 10_000)]
        assert failure(db, "SELECT b FROM t").failure is Failure.BYTES


def contents(folder: Path) -> dict[str, str]:
    """The digest of each file but the index of a log, which readers mark as well."""
    return {
        file.name: "" if file.name.endswith("-shm") else hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if file.is_file()
    }


def write_ahead(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("DELETE FROM shop WHERE id > 2")
    return connection


def test_a_closed_database_in_wal_mode_gets_no_files_beside_it(shops: Path) -> None:
    write_ahead(shops).close()
    before = contents(shops.parent)
    with closing(opened(shops)) as db:
        assert db.query("SELECT count(*) FROM shop", LIMITS).rows == ((2,),)
        assert contents(shops.parent) == before
    assert contents(shops.parent) == before


def test_a_log_in_use_is_read(shops: Path) -> None:
    with closing(write_ahead(shops)):
        before = contents(shops.parent)
        with closing(opened(shops)) as db:
            assert db.query("SELECT count(*) FROM shop", LIMITS).rows == ((2,),)
        assert contents(shops.parent) == before


def test_a_log_that_was_left_behind_is_not_played_back_here(shops: Path, tmp_path: Path) -> None:
    left = tmp_path / "left" / shops.name
    left.parent.mkdir()
    with closing(write_ahead(shops)):
        for ending in ("", "-wal"):
            shutil.copy(f"{shops}{ending}", f"{left}{ending}")
    before = contents(left.parent)
    with pytest.raises(BackendError, match="schema_version"):
        opened(left)
    assert contents(left.parent) == before


def test_a_journal_that_was_left_behind_is_not_played_back_here(tmp_path: Path) -> None:
    path = tmp_path / "half.sqlite"
    script = (
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('PRAGMA cache_size = 5')\n"
        "db.execute('CREATE TABLE t (a)')\n"
        "db.execute('BEGIN')\n"
        "db.executemany('INSERT INTO t VALUES (?)', [('x' * 2000,)] * 500)\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=60)
    before = contents(tmp_path)
    with pytest.raises(BackendError, match="schema_version"):
        opened(path)
    assert contents(tmp_path) == before


def test_a_database_that_cannot_be_read_is_the_backends_fault(shops: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(shops, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(BackendError, match="locked"):
            opened(shops)
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"SQLite format 3\0" + os.urandom(4096))
    with pytest.raises(BackendError, match="not a database"):
        opened(damaged)
    with closing(opened(shops)) as db:
        with shops.open("r+b") as file:
            file.seek(100)
            file.write(os.urandom(4096 * 3))
        with pytest.raises(BackendError, match="malformed"):
            db.query("SELECT * FROM city", LIMITS)


def test_a_column_may_have_the_name_of_our_own_in_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("CREATE TABLE spot (place_ INTEGER, Place_0 TEXT COLLATE NOCASE)")
        writer.executemany("INSERT INTO spot VALUES (?, 'x')", [(number,) for number in (7, 1, 4, 3, 8, 5)])
        writer.commit()
    with closing(opened(path)) as db:
        assert db.read("spot", 3) == [(7, "x"), (4, "x"), (8, "x")]
        assert [table.collated for table in db.schema().tables] == [True]


def test_a_connection_may_be_used_by_one_thread_after_another(db: SqliteDatabase) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for _ in range(2):
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(db.query, "SELECT count(*) FROM shop", LIMITS).result().rows == ((5,),)


def test_trim_is_sqlites_own() -> None:
    texts = [
        "'xxaxx'",
        "''",
        "NULL",
        "'äöxä'",
        "x'78617878'",
        "1.0",
        "-100",
        "1e300",
        "1e-7",
        "9e999",
        "12345678901234.5",
        "'  a '",
    ]
    sets = ["'x'", "'äx'", "''", "NULL", "0", "'.0e+'", "x'78'", "' '", "'xä0.1'"]
    sql = "SELECT " + ", ".join(f"{name}({a}, {b})" for name in ("trim", "ltrim", "rtrim") for a in texts for b in sets)
    with closing(sqlite3.connect(":memory:")) as theirs, closing(sqlite3.connect(":memory:")) as ours:
        replace_trim(ours)
        assert ours.execute(sql).fetchone() == theirs.execute(sql).fetchone()


def test_what_makes_a_query_late_is_its_work_also_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = 0.0
    monkeypatch.setattr(limiting, "time", SimpleNamespace(thread_time=lambda: cpu))
    works, calls = limiting.Budget(1.0), limiting.INSTRUCTIONS // limiting.STEP  # of a second
    assert not any(works.over() for _ in range(calls))
    assert works.used == pytest.approx(1.0)
    assert works.over()
    calls_functions = limiting.Budget(1.0)
    cpu = 0.9
    assert not calls_functions.over()
    assert calls_functions.used == pytest.approx(0.9)
    cpu = 1.1
    assert calls_functions.over()
