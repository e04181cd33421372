"""PostgreSQL: accounts, values, what a copy keeps, and lost connections."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from database_servers import Server
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits
from rlfactory_nl2sql.databases.reference import DatabaseRef, connect, parse_reference
from rlfactory_nl2sql.verification.connections import Connections
from sql_databases import VARIABLE, make_postgres, postgres_admin

from rlfactory_core.errors import BackendError, UsageError

LIMITS = QueryLimits()
ODD = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE "Odd One" (
    "the id" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    amount numeric(10, 2), day date, at timestamptz,
    clock time, span interval, raw bytea, id uuid, mood mood, numbers int[], doc jsonb, gap int4range, host inet,
    yes boolean, twice bigint GENERATED ALWAYS AS (7 * 2) STORED
);
CREATE UNIQUE INDEX partly ON "Odd One" (day) WHERE yes;
CREATE UNIQUE INDEX computed ON "Odd One" (lower(host::text));
CREATE UNIQUE INDEX once ON "Odd One" (day, amount);
CREATE TABLE part (id int, year int) PARTITION BY LIST (year);
CREATE TABLE part_2020 PARTITION OF part FOR VALUES IN (2020);
CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM part;
CREATE VIEW early AS SELECT name FROM singer;
CREATE VIEW late AS SELECT name FROM singer;
CREATE OR REPLACE VIEW early AS SELECT name FROM late;
CREATE TABLE hidden (id int);
CREATE TABLE bare ();
INSERT INTO bare DEFAULT VALUES;
CREATE FUNCTION shown() RETURNS text LANGUAGE sql AS
    $$ SELECT trim(query) FROM pg_stat_activity WHERE pid = pg_backend_pid() $$;
CREATE FUNCTION leave() RETURNS bool LANGUAGE sql AS $$ SELECT pg_terminate_backend(pg_backend_pid()) $$;
INSERT INTO part VALUES (1, 2020);
INSERT INTO "Odd One" (amount, day, at, clock, span, raw, id, mood, numbers, doc, gap, host, yes) VALUES (
    1.50, 'infinity', '2020-01-01 12:00:00+00', '08:30', '2 days', '\\x00ff', '00000000-0000-0000-0000-000000000001',
    'ok', '{1,NULL,3}', '{"k": [1]}', '[1,5)', '10.0.0.1', true
);
GRANT SELECT ON "Odd One", part, part_2020, counted, late, early, bare TO reader;
"""


@pytest.fixture(scope="module")
def ref(postgres: Server) -> DatabaseRef:
    made = make_postgres(postgres)
    with postgres_admin(postgres, "music") as admin:
        admin.execute(ODD)
    return made


@pytest.fixture
def given(ref: DatabaseRef) -> Iterator[Connection]:
    connection = connect(ref, LIMITS)
    yield connection
    connection.close()


def one(connection: Connection, sql: str) -> Any:
    ((value,),) = connection.query(sql, LIMITS).rows
    return value


@pytest.mark.slow
def test_values_are_plain_and_go_into_a_copy(given: Connection) -> None:
    rows = given.query('SELECT * FROM "Odd One"', LIMITS).rows

    assert rows[0][:3] == (1, Decimal("1.50"), "infinity")
    assert rows[0][3] == dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)
    assert rows[0][4:7] == (dt.time(8, 30), dt.timedelta(days=2), b"\x00\xff")
    assert rows[0][7:] == (UUID(int=1), "ok", [1, None, 3], '{"k": [1]}', "[1,5)", "10.0.0.1", True, 14)
    assert pickle.loads(pickle.dumps(rows)) == rows
    copy = given.instance({"Odd One": given.read("Odd One", 5)})
    assert copy.query('SELECT * FROM "Odd One"', LIMITS).rows == rows
    copy.close()


def test_a_table_without_columns_is_empty_in_a_copy(given: Connection) -> None:
    assert one(given, "SELECT count(*) FROM bare") == 1
    copy = given.instance({"bare": given.read("bare", 5)})
    assert one(copy, "SELECT count(*) FROM bare") == 0
    copy.close()


def test_the_schema_has_what_the_account_may_read(given: Connection) -> None:
    schema = given.schema()
    odd = schema.table("Odd One")

    assert odd is not None
    assert odd.unique == (("day", "amount"),)
    assert schema.table("hidden") is None
    assert schema.table("part_2020") is None
    counted = schema.table("counted")
    assert counted is not None
    assert counted.view


def test_a_copy_hides_the_given_data_under_every_name(given: Connection) -> None:
    copy = given.instance({"part": [(5, 1999), (6, 1999)], "singer": [(1, "Zoe", None, None)]})

    assert one(copy, "SELECT count(*) FROM public.part") == 2
    assert one(copy, 'SELECT count(public.part.id) FROM "public"."part" WHERE public.part.id > 5') == 1
    assert one(copy, "WITH part AS (SELECT 1 AS id UNION SELECT id FROM part) SELECT count(*) FROM part") == 3
    assert one(copy, "WITH a AS (SELECT 7 AS x), b AS (SELECT x FROM a) SELECT (SELECT max(x) FROM b) FROM a") == 7
    assert one(copy, "WITH RECURSIVE n AS (SELECT 1 AS i UNION SELECT i+1 FROM n WHERE i<4) SELECT max(i) FROM n") == 4
    assert one(copy, "SELECT n FROM counted") == 2
    assert one(copy, "SELECT name FROM early") == "Zoe"
    for sql in (
        "SELECT * FROM part_2020",
        "WITH part_2020 AS (SELECT * FROM part_2020) SELECT * FROM part_2020",
        "SELECT * FROM part_2020, (WITH part_2020 AS (SELECT 1) SELECT * FROM part_2020) AS other",
        "WITH a AS (SELECT * FROM part_2020), part_2020 AS (SELECT 1) SELECT * FROM a",
        "SELECT * FROM pg_class",
        "SELECT * FROM information_schema.tables",
    ):
        with pytest.raises(QueryError, match="is not a table of this database"):
            copy.query(sql, LIMITS)
    copy.close()
    assert one(given, "SELECT count(*) FROM part") == 1


def test_grouping_by_a_key_works_in_a_copy_too(given: Connection) -> None:
    copy = given.instance({"singer": [(1, "Zoe", None, None)]})

    assert one(copy, "SELECT name FROM singer GROUP BY id") == "Zoe"
    copy.close()


def test_what_sqlglot_cannot_read_is_for_the_server_to_judge(given: Connection) -> None:
    assert len(given.query("TABLE singer", LIMITS).rows) == 3


@pytest.mark.parametrize(
    "rights", ["SUPERUSER", "ROLE admin", "ROLE pg_read_server_files", "ROLE pg_execute_server_program"]
)
def test_an_account_that_may_do_more_is_refused_with_the_sql_for_another(
    rights: str, ref: DatabaseRef, postgres: Server
) -> None:
    with postgres_admin(postgres, "music") as admin:
        admin.execute("DROP ROLE IF EXISTS strong")
        admin.execute(f"CREATE ROLE strong LOGIN PASSWORD '{postgres.password}' {rights.replace('ROLE', 'IN ROLE')}")

    with pytest.raises(UsageError, match="CREATE ROLE sql_reader LOGIN NOSUPERUSER"):
        connect(parse_reference(ref.location.replace("reader:", "strong:")), LIMITS)


def test_without_the_right_to_temporary_tables_there_are_no_copies(
    ref: DatabaseRef, given: Connection, postgres: Server
) -> None:
    with postgres_admin(postgres, "music") as admin:
        admin.execute("REVOKE TEMPORARY ON DATABASE music FROM PUBLIC")
    try:
        with pytest.raises(BackendError, match='GRANT CONNECT, TEMPORARY ON DATABASE "music"'):
            given.instance({})
    finally:
        with postgres_admin(postgres, "music") as admin:
            admin.execute("GRANT TEMPORARY ON DATABASE music TO PUBLIC")


def test_a_lost_connection_is_a_backend_error(given: Connection, postgres: Server) -> None:
    assert one(given, "SELECT 1") == 1
    with postgres_admin(postgres, "music") as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'")

    for _ in range(2):
        with pytest.raises(BackendError):
            given.query("SELECT 1", LIMITS)


def test_what_a_session_runs_is_not_seen_in_the_list_of_sessions(given: Connection) -> None:
    assert one(given, "SELECT shown() AS gold") == ""
    assert given.query("SELECT 1 FROM song WHERE shown() <> ''", LIMITS).rows == ()


def test_a_prediction_that_ends_its_session_fails(ref: DatabaseRef) -> None:
    opened = Connections()
    try:
        for _ in range(2):  # on a new connection, and on one that was kept
            with pytest.raises(QueryError, match="ended its own session"):
                opened.use(ref, LIMITS, lambda database: database.connection.query("SELECT leave()", LIMITS))
            assert opened.use(ref, LIMITS, lambda database: one(database.connection, "SELECT 1")) == 1
    finally:
        opened.close()


@pytest.mark.slow  # as long as we wait for a lock
def test_a_table_that_is_locked_is_not_the_query_s_fault(given: Connection, postgres: Server) -> None:
    with postgres_admin(postgres, "music") as admin, admin.transaction():
        admin.execute("LOCK TABLE song IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(BackendError, match="lock timeout"):
            given.query("SELECT * FROM song", LIMITS)
    assert one(given, "SELECT count(*) FROM song") == 3


@pytest.mark.parametrize(
    ("location", "error", "says"),
    [
        ("postgresql://reader@127.0.0.1:1/music", BackendError, "refuses the connection"),
        ("postgresql://reader:${RLFACTORY_NOT_SET}@127.0.0.1:1/music", UsageError, "RLFACTORY_NOT_SET"),
        ("postgresql://reader@127.0.0.1:1", UsageError, "no URL that names a database"),
    ],
)
def test_where_no_connection_can_be(location: str, error: type[Exception], says: str) -> None:
    pytest.importorskip("psycopg", reason="the extra postgresql is not installed")

    with pytest.raises(error, match=says):
        connect(DatabaseRef("postgres", location), LIMITS)


def test_a_wrong_password_is_not_told(ref: DatabaseRef, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a wrong secret")

    with pytest.raises(BackendError, match="refuses the connection") as caught:
        connect(ref, LIMITS)
    assert "wrong secret" not in str(caught.value)


def test_permission_denied_is_refused(given: Connection) -> None:
    with pytest.raises(QueryError) as caught:
        given.query("SELECT * FROM hidden", LIMITS)
    assert caught.value.failure is Failure.REFUSED
