"""DuckDB files: values, what a copy keeps, and what stands in the way of opening one."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

duckdb = pytest.importorskip("duckdb", reason="the extra duckdb is not installed")

from rlfactory_nl2sql.connection import Failure, QueryError, QueryLimits  # noqa: E402
from rlfactory_nl2sql.databases.opening import connect  # noqa: E402
from rlfactory_nl2sql.databases.reference import DatabaseRef, parse_reference  # noqa: E402

from rlfactory_core.errors import BackendError  # noqa: E402

LIMITS = QueryLimits()
ODD = """
CREATE TABLE "odd ""one" (
    "the id" BIGINT PRIMARY KEY, amount DECIMAL(10, 2), day DATE, moment TIMESTAMP, clock TIME, span INTERVAL, raw BLOB,
    id UUID, mood ENUM ('sad', 'ok'), numbers INTEGER[], pair STRUCT(a INTEGER, b VARCHAR), doc JSON, big HUGEINT,
    yes BOOLEAN, twice BIGINT GENERATED ALWAYS AS ("the id" * 2)
);
CREATE UNIQUE INDEX once ON "odd ""one" (day, amount);
CREATE VIEW last AS SELECT twice FROM first;
"""
ROW = (
    7, Decimal("1.50"), dt.date(2020, 2, 29), dt.datetime(2020, 1, 1, 12), dt.time(8, 30),  # noqa: DTZ001 - as the column
    dt.timedelta(days=2), b"\x00\xff", UUID(int=1), "ok", [1, None, 3], {"a": 1, "b": "x"}, '{"k": [1]}', 2**100, True,
)  # fmt: skip


@pytest.fixture
def odd(tmp_path: Path) -> DatabaseRef:
    path = tmp_path / "memory.duckdb"  # DuckDB's own name for what is in memory
    with duckdb.connect(str(path)) as connection:
        connection.execute('CREATE TABLE "base" (twice BIGINT); CREATE VIEW first AS SELECT twice FROM "base"')
        for statement in ODD.strip().split(";\n"):
            connection.execute(statement)
        connection.execute(f'INSERT INTO "odd ""one" VALUES ({", ".join("?" * len(ROW))})', list(ROW))
    return parse_reference(path)


def test_values_are_plain_and_go_into_a_copy(odd: DatabaseRef) -> None:
    given = connect(odd, LIMITS)
    rows = given.query('SELECT * FROM "odd ""one"', LIMITS).rows
    assert rows == ((*ROW, 14),)
    assert pickle.loads(pickle.dumps(rows)) == rows

    copy = given.instance({'odd "one': given.read('odd "one', 5), "base": [(3,)]})

    assert copy.query('SELECT * FROM "odd ""one"', LIMITS).rows == rows
    assert copy.query("SELECT * FROM last", LIMITS).rows == ((3,),)
    copy.close()
    given.close()


def test_a_unique_index_and_generated_columns_are_in_the_schema(odd: DatabaseRef) -> None:
    given = connect(odd, LIMITS)
    table = given.schema().table('odd "one')
    given.close()

    assert table is not None
    assert table.unique == (("day", "amount"),)
    assert table.columns[-1].name == "twice"
    assert table.columns[1].type == "DECIMAL(10,2)"


def test_a_copy_answers_to_the_name_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "music.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE song AS SELECT 1 AS id")
    given = connect(parse_reference(path), LIMITS)
    copy = given.instance({"song": [(5,)]})

    assert given.query("SELECT id FROM music.main.song", LIMITS).rows == ((1,),)
    assert copy.query("SELECT id FROM music.main.song", LIMITS).rows == ((5,),)
    copy.close()
    given.close()


def test_two_connections_in_one_process_have_limits_of_their_own(odd: DatabaseRef) -> None:
    small, large = connect(odd, QueryLimits(memory_mb=64)), connect(odd, QueryLimits(memory_mb=512))

    assert small.query("SELECT 1", LIMITS).rows == large.query("SELECT 1", LIMITS).rows
    small.close()
    assert large.query("SELECT 1", LIMITS).rows == ((1,),)
    large.close()


def test_the_databases_of_a_question_leave_a_worker_its_memory(odd: DatabaseRef) -> None:
    """A worker has 1 GB of address space, and a stack takes 8 MB of it."""
    before = len(os.listdir("/proc/self/task"))
    given = connect(odd, LIMITS)
    databases = [given, *(given.instance({}) for _ in range(15))]
    assert len(os.listdir("/proc/self/task")) == before
    for database in databases:
        database.close()


def test_rows_that_break_a_key_make_no_copy(odd: DatabaseRef) -> None:
    given = connect(odd, LIMITS)

    with pytest.raises(BackendError, match="cannot be made"):
        given.instance({'odd "one': [(*ROW, 14), (*ROW, 14)]})
    given.close()


def test_a_file_that_another_process_writes_is_no_database_to_read(odd: DatabaseRef) -> None:
    program = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, odd.location], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        with pytest.raises(BackendError, match="lock"):
            connect(odd, LIMITS)
        writer.communicate("")


def test_a_file_that_is_gone_is_a_backend_error(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="is not there"):
        connect(DatabaseRef("duckdb", str(tmp_path / "gone.duckdb")), LIMITS)


def test_where_no_memory_is_left_for_a_thread_the_query_needed_too_much(
    odd: DatabaseRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    given = connect(odd, LIMITS)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_room)
        with pytest.raises(QueryError) as caught:
            given.query("SELECT 1", LIMITS)
    assert caught.value.failure is Failure.MEMORY
    assert given.query("SELECT 1", LIMITS).rows == ((1,),)
    given.close()
