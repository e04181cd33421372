"""Hostile SQL on PostgreSQL and MariaDB: the right failure in time, nothing written, the connection lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from database_servers import PASSWORD
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits
from rlfactory_nl2sql.databases.reference import connect
from sql_databases import make_mysql, make_postgres, mysql_admin, mysql_rows, postgres_admin, postgres_rows

LIMITS = QueryLimits(seconds=60.0, rows=1000, bytes=1_000_000, memory_mb=128)
SHORT = replace(LIMITS, seconds=0.4)  # for what only the deadline ends: on a busy machine it would come before the rest
SLACK = 30.0  # seconds, on a busy machine: a query that is not cut would take minutes
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
DOUBLING = ", ".join(
    ["WITH a0 AS (SELECT 1 AS x)", *(f"a{i} AS (SELECT l.x FROM a{i - 1} l, a{i - 1} r)" for i in range(1, 25))]
)

POSTGRES = {
    "SELECT count(*) FROM generate_series(1, 1000000000000)": Failure.DEADLINE,
    "SELECT generate_series(1, 1000000000000)": Failure.ROWS,
    ENDLESS + "SELECT max(i) FROM n": Failure.DEADLINE,
    "SELECT pg_sleep(60)": Failure.DEADLINE,
    "SELECT count(*) FROM note a, note b, note c, note d, note e WHERE a.text || b.text < c.text": Failure.DEADLINE,
    "SELECT repeat('x', 2000000)": Failure.BYTES,
    "SELECT repeat(repeat('x', 1000000), 1200)": Failure.MEMORY,
    "SELECT pg_read_file('/etc/passwd')": Failure.REFUSED,
    "SELECT pg_catalog.pg_read_file('/etc/passwd')": Failure.REFUSED,
    "SELECT \"pg_read_file\" ('/etc/passwd')": Failure.REFUSED,
    "SELECT lo_import('/etc/passwd')": Failure.REFUSED,
    "SELECT lo_create(0)": Failure.REFUSED,
    "SELECT dblink_connect('host=example.org')": Failure.REFUSED,
    "SELECT pg_terminate_backend(1)": Failure.REFUSED,
    "SELECT pg_advisory_lock(1)": Failure.REFUSED,
    "SELECT set_config('statement_timeout', '0', false)": Failure.REFUSED,
    "SELECT query_to_xml('DELETE FROM sings', true, true, '')": Failure.REFUSED,
    "SELECT query FROM pg_stat_activity": Failure.REFUSED,
    'SELECT query FROM U&"pg\\005fstat\\005factivity"': Failure.REFUSED,
    "SELECT query FROM u&\"pg!005fstat_activity\" UESCAPE '!'": Failure.REFUSED,
    'SELECT U&"pg\\005fterminate_backend"(1)': Failure.REFUSED,
    'SELECT pg_catalog./* */U&"pg\\005fterminate_backend" /* */ (1)': Failure.REFUSED,
    'SELECT $$ $$, 1U&"pg\\005fterminate_backend"': Failure.REFUSED,
    "SELECT rolpassword FROM pg_authid": Failure.REFUSED,
    "SELECT wipe()": Failure.REFUSED,  # a function of the database's own that deletes
    "COPY singer TO '/tmp/singers.csv'": Failure.REFUSED,
    "COPY (SELECT 1) TO PROGRAM 'id'": Failure.REFUSED,
    "DO $$ BEGIN DELETE FROM sings; END $$": Failure.REFUSED,
    "SELECT * FROM singer FOR UPDATE": Failure.REFUSED,
    "LISTEN x": Failure.REFUSED,
    "SET ROLE admin": Failure.REFUSED,
    "PREPARE p AS DELETE FROM sings": Failure.REFUSED,
    "EXPLAIN ANALYZE DELETE FROM sings": Failure.REFUSED,
}
MYSQL = {
    "SELECT max(seq) FROM (SELECT seq + rand() AS seq FROM seq_1_to_1000000000000) n": Failure.DEADLINE,
    "SELECT seq FROM seq_1_to_1000000000000": Failure.ROWS,
    "SELECT sum(1) FROM note a, note b, note c, note d, note e WHERE concat(a.text, e.text) > c.text": Failure.DEADLINE,
    "SELECT md5(a.seq) AS x FROM seq_1_to_1000000000 a ORDER BY x": Failure.DEADLINE,
    "SELECT repeat('x', 2000000)": Failure.BYTES,
    "SELECT sleep(60)": Failure.REFUSED,
    "SELECT benchmark(1000000000000, md5('x'))": Failure.REFUSED,
    "SELECT get_lock('x', 60)": Failure.REFUSED,
    "SELECT load_file('/etc/passwd')": Failure.REFUSED,
    "SELECT 1 INTO OUTFILE '/tmp/one'": Failure.REFUSED,
    "SELECT 1 /*! INTO OUTFILE '/tmp/one' */": Failure.REFUSED,
    "SELECT /*+ MAX_EXECUTION_TIME(100000) */ 1": Failure.REFUSED,
    "SET STATEMENT max_statement_time = 0 FOR SELECT 1": Failure.REFUSED,
    "SELECT @@datadir": Failure.REFUSED,
    "SELECT @x := 1": Failure.REFUSED,
    "SELECT user FROM mysql.user": Failure.REFUSED,
    "SELECT info FROM information_schema.processlist": Failure.REFUSED,
    "SELECT * FROM performance_schema.threads": Failure.REFUSED,
    "SELECT wipe()": Failure.REFUSED,  # a function of the database's own that deletes
    "SELECT * FROM singer FOR UPDATE": Failure.REFUSED,
    "SELECT * FROM singer LOCK IN SHARE MODE": Failure.REFUSED,
    "SHOW PROCESSLIST": Failure.REFUSED,
    "LOAD DATA INFILE '/etc/passwd' INTO TABLE note": Failure.REFUSED,
    "HANDLER singer OPEN": Failure.REFUSED,
    "CALL wipe()": Failure.REFUSED,
    "KILL 1": Failure.REFUSED,
}


@dataclass(frozen=True)
class Target:
    given: Connection
    varied: Connection
    rows: Callable[[], Any]  # what is there, seen by the administrator


@pytest.fixture(scope="module")
def postgres_target(postgres: Any) -> Iterator[Target]:
    ref = make_postgres(postgres)
    with postgres_admin(postgres, "music") as admin:
        admin.execute("CREATE FUNCTION wipe() RETURNS int LANGUAGE sql AS 'DELETE FROM sings RETURNING 1'")
        admin.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO reader")
        admin.execute("GRANT CREATE ON SCHEMA public TO reader")
    yield from opened(ref, lambda: postgres_rows(postgres))


@pytest.fixture(scope="module")
def mysql_target(mariadb: Any) -> Iterator[Target]:
    ref = make_mysql(mariadb)
    with mysql_admin(mariadb, "music") as admin, admin.cursor() as cursor:
        cursor.execute("CREATE FUNCTION wipe() RETURNS int MODIFIES SQL DATA BEGIN DELETE FROM sings; RETURN 1; END")
        cursor.execute("GRANT ALL ON music.* TO reader")
    yield from opened(ref, lambda: mysql_rows(mariadb))


def opened(ref: Any, rows: Callable[[], Any]) -> Iterator[Target]:
    given = connect(ref, LIMITS)
    varied = given.instance({"sings": [(1, 1)], "note": [(f"n{number}",) for number in range(100)]})
    yield Target(given, varied, rows)
    varied.close()
    given.close()


def fails(connection: Connection, sql: str, expected: Failure) -> None:
    limits = SHORT if expected is Failure.DEADLINE else LIMITS
    started = time.monotonic()
    with pytest.raises(QueryError) as caught:
        connection.query(sql, limits)
    assert time.monotonic() - started < SHORT.seconds + SLACK
    assert caught.value.failure is expected, str(caught.value)
    assert all(secret not in str(caught.value) for secret in ("127.0.0.1", "/tmp", "root:", PASSWORD))
    assert connection.query("SELECT 1", LIMITS).rows == ((1,),)


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param(sql, marks=[pytest.mark.slow] if failure in (Failure.DEADLINE, Failure.MEMORY) else [])
        for sql, failure in POSTGRES.items()
    ],
)
def test_postgres_withstands(sql: str, postgres_target: Target) -> None:
    before = postgres_target.rows()

    fails(postgres_target.given, sql, POSTGRES[sql])
    if "wipe" not in sql:  # a copy's rows would be deleted and come back: the transaction is rolled back
        fails(postgres_target.varied, sql, POSTGRES[sql])
    else:
        postgres_target.varied.query(sql, LIMITS)
    assert postgres_target.rows() == before
    assert postgres_target.varied.query("SELECT * FROM sings", LIMITS).rows == ((1, 1),)


@pytest.mark.slow
@pytest.mark.parametrize("sql", MYSQL)
def test_mysql_withstands(sql: str, mysql_target: Target) -> None:
    before = mysql_target.rows()

    fails(mysql_target.given, sql, MYSQL[sql])

    assert mysql_target.rows() == before
    assert mysql_target.varied.query("SELECT * FROM sings", LIMITS).rows == ((1, 1),)


def test_tables_that_double_end_in_time(postgres_target: Target) -> None:
    sql = DOUBLING + " SELECT count(*) FROM a24"
    started = time.monotonic()

    with pytest.raises(QueryError):
        postgres_target.given.query(sql.replace("SELECT 1 AS x", "SELECT 1 AS x UNION ALL SELECT 2"), SHORT)

    assert time.monotonic() - started < SHORT.seconds + SLACK
