"""MariaDB: accounts, values, what a copy keeps, what is left behind, and lost connections."""

from __future__ import annotations

import datetime as dt
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

import pytest
from database_servers import Server
from rlfactory_nl2sql.connection import Connection, QueryLimits
from rlfactory_nl2sql.databases.reference import DatabaseRef, connect, parse_reference
from sql_databases import make_mysql, mysql_admin

from rlfactory_core.errors import BackendError, UsageError

pytestmark = pytest.mark.slow
LIMITS = QueryLimits()
ODD = """
CREATE TABLE `odd ``one%` (
    `the id` BIGINT AUTO_INCREMENT PRIMARY KEY, amount DECIMAL(10, 2), day DATE, at DATETIME, clock TIME, raw BLOB,
    mood ENUM ('sad', 'ok'), doc JSON, flags BIT(3), born YEAR, words TEXT, twice BIGINT AS (14) STORED,
    UNIQUE (words(10)), UNIQUE (day, amount)
);
INSERT INTO `odd ``one%` (`the id`, amount, day, at, clock, raw, mood, doc, flags, born, words) VALUES (
    7, 1.50, '2020-02-29', '2020-01-01 12:00:00', '-08:30:00', x'00ff', 'ok', '{"k": [1]}', b'101', 1999,
    'It''s `music`.x'
);
CREATE VIEW first AS SELECT `the id`, 'It''s `music`.song' AS said FROM `odd ``one%`;
CREATE VIEW a_last AS SELECT said FROM first
"""
ROW = (
    7, Decimal("1.50"), dt.date(2020, 2, 29), dt.datetime(2020, 1, 1, 12),  # noqa: DTZ001 - as the column
    -dt.timedelta(hours=8, minutes=30), b"\x00\xff", "ok", '{"k": [1]}', 5, 1999, "It's `music`.x", 14,
)  # fmt: skip


@pytest.fixture(scope="module")
def ref(mariadb: Server) -> DatabaseRef:
    made = make_mysql(mariadb)
    run(mariadb, *ODD.split(";\n"))
    return made


@pytest.fixture
def given(ref: DatabaseRef) -> Iterator[Connection]:
    connection = connect(ref, LIMITS)
    yield connection
    connection.close()


def run(server: Server, *statements: str) -> list[tuple[Any, ...]]:
    """As the administrator; the rows of the last."""
    with closing(mysql_admin(server, "music")) as admin, admin.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def copies(server: Server) -> list[str]:
    return [name for (name,) in run(server, r"SHOW DATABASES LIKE 'rlfactory\_%'")]


def test_values_are_plain_and_go_into_a_copy(given: Connection) -> None:
    rows = given.query("SELECT * FROM `odd ``one%`", LIMITS).rows

    assert rows == (ROW,)
    assert pickle.loads(pickle.dumps(rows)) == rows
    zero = (0, None, *ROW[2:])
    copy = given.instance({"odd `one%": [*given.read("odd `one%", 5), zero]})
    assert copy.query("SELECT * FROM `odd ``one%` ORDER BY 1", LIMITS).rows == (zero, ROW)
    assert copy.query("SELECT DISTINCT said FROM a_last", LIMITS).rows == (("It's `music`.song",),)
    copy.close()


def test_select_star_leaves_out_invisible_columns_in_a_copy_too(ref: DatabaseRef, mariadb: Server) -> None:
    run(
        mariadb,
        "CREATE TABLE masked (id INT PRIMARY KEY, secret VARCHAR(9) COLLATE utf8mb4_bin NOT NULL DEFAULT '' INVISIBLE, "
        "word TEXT, UNIQUE (secret))",
        "INSERT INTO masked (id, secret, word) VALUES (1, 'a', 'x')",
    )
    try:
        with closing(connect(ref, LIMITS)) as given:
            rows = given.read("masked", 5)
            assert rows == ((1, "a", "x"),)
            with closing(given.instance({"masked": [*rows, (2, "A", "y")]})) as copy:
                for sql, expected in (
                    ("SELECT * FROM masked", ((1, "x"), (2, "y"))),
                    ("SELECT id, secret FROM masked WHERE secret = 'a'", ((1, "a"),)),
                ):
                    assert copy.query(sql, LIMITS).rows == expected
                assert given.query("SELECT * FROM masked", LIMITS).rows == ((1, "x"),)
    finally:
        run(mariadb, "DROP TABLE masked")


def test_a_key_that_is_invisible_makes_no_copy(ref: DatabaseRef, mariadb: Server) -> None:
    run(mariadb, "CREATE TABLE masked (id INT AUTO_INCREMENT INVISIBLE PRIMARY KEY, word TEXT)")
    try:
        with closing(connect(ref, LIMITS)) as given, pytest.raises(BackendError, match=r"cannot be made: .*`id`"):
            given.instance({})
    finally:
        run(mariadb, "DROP TABLE masked")


def test_an_index_over_parts_of_values_makes_nothing_unique(given: Connection) -> None:
    table = given.schema().table("odd `one%")

    assert table is not None
    assert table.unique == (("day", "amount"),)


def test_a_copy_hides_the_given_data_under_every_name(given: Connection) -> None:
    copy = given.instance({"singer": [(8, "Zoe", None, None)]})

    assert copy.query("SELECT music.singer.name FROM music.singer", LIMITS).rows == (("Zoe",),)
    assert copy.query("SELECT a.id FROM `music`.`singer` a JOIN Music.singer b USING (id)", LIMITS).rows == ((8,),)
    assert len(given.query("SELECT name FROM music.singer", LIMITS).rows) == 3
    copy.close()


def test_a_copy_is_gone_when_it_is_closed(given: Connection, mariadb: Server) -> None:
    copy = given.instance({})
    assert len(copies(mariadb)) == 1

    copy.close()

    assert copies(mariadb) == []


def test_what_a_killed_process_leaves_is_dropped_by_the_next(ref: DatabaseRef, mariadb: Server) -> None:
    program = (
        "import sys\nfrom rlfactory_nl2sql.connection import QueryLimits\n"
        "from rlfactory_nl2sql.databases.reference import connect\n"
        "from rlfactory_nl2sql.databases.reference import parse_reference\n"
        "given = connect(parse_reference(sys.argv[1]), QueryLimits())\ncopy = given.instance({})\n"
        "print('made', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, ref.location], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        (left,) = copies(mariadb)
        beside = connect(ref, LIMITS)
        beside.instance({}).close()
        assert copies(mariadb) == [left]  # its maker lives
        beside.close()
        process.send_signal(signal.SIGKILL)
        process.wait()
    run(mariadb, f"SELECT GET_LOCK('{left}', 20)")  # until the server has noticed

    after = connect(ref, LIMITS)
    after.instance({}).close()
    after.close()

    assert copies(mariadb) == []


def test_a_stranger_s_database_is_not_dropped(ref: DatabaseRef, mariadb: Server) -> None:
    run(mariadb, "CREATE DATABASE rlfactory_notes")
    try:
        given = connect(ref, LIMITS)
        given.instance({}).close()
        given.close()
        assert copies(mariadb) == ["rlfactory_notes"]
    finally:
        run(mariadb, "DROP DATABASE rlfactory_notes")


def test_a_copy_that_may_not_be_dropped_keeps_nobody_from_connecting(ref: DatabaseRef, mariadb: Server) -> None:
    left = "rlfactory_0123456789abcdef"
    run(mariadb, f"CREATE DATABASE {left}", r"REVOKE DROP ON `rlfactory\_%`.* FROM reader")
    try:
        with closing(connect(ref, LIMITS)) as given:
            assert given.query("SELECT 1", LIMITS).rows == ((1,),)
        assert copies(mariadb) == [left]
    finally:
        run(mariadb, r"GRANT DROP ON `rlfactory\_%`.* TO reader", f"DROP DATABASE {left}")


def test_without_the_right_to_make_databases_there_are_no_copies(given: Connection, mariadb: Server) -> None:
    run(mariadb, r"REVOKE CREATE ON `rlfactory\_%`.* FROM reader")
    try:
        with pytest.raises(BackendError, match="GRANT SELECT, INSERT, CREATE, DROP"):
            given.instance({})
    finally:
        run(mariadb, r"GRANT CREATE ON `rlfactory\_%`.* TO reader")


@pytest.mark.parametrize("rights", ["ALL", "SELECT, FILE", "SUPER"])
def test_an_account_that_may_do_more_is_refused_with_the_sql_for_another(
    rights: str, ref: DatabaseRef, mariadb: Server
) -> None:
    run(
        mariadb, f"CREATE OR REPLACE USER strong IDENTIFIED BY '{mariadb.password}'", f"GRANT {rights} ON *.* TO strong"
    )
    run(mariadb, "GRANT SELECT ON music.* TO strong")

    with pytest.raises(UsageError, match="CREATE USER sql_reader"):
        connect(parse_reference(ref.location.replace("reader:", "strong:")), LIMITS)


def test_quotes_are_read_as_the_checks_read_them(ref: DatabaseRef, mariadb: Server) -> None:
    """Whatever the server's own mode is: else a text could hide a part of a statement from the checks."""
    run(mariadb, "SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
    try:
        given = connect(ref, LIMITS)
        assert given.query(r"""SELECT "name", 'it\'s'""", LIMITS).rows == (("name", "it's"),)
        given.close()
    finally:
        run(mariadb, "SET GLOBAL sql_mode = DEFAULT")


def test_a_lost_connection_is_a_backend_error(given: Connection, mariadb: Server) -> None:
    ((number,),) = given.query("SELECT connection_id()", LIMITS).rows
    run(mariadb, f"KILL {number}")

    for _ in range(2):
        with pytest.raises(BackendError):
            given.query("SELECT 1", LIMITS)


def test_where_no_connection_can_be() -> None:
    pytest.importorskip("pymysql", reason="the extra mysql is not installed")

    with pytest.raises(BackendError, match="refuses the connection"):
        connect(DatabaseRef("mysql", "mysql://reader@127.0.0.1:1/music"), LIMITS)
