"""Every kind of database keeps the same contract, `connection.Connection`: the given one and its varied copies."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from database_servers import PASSWORD
from effort import modest_effort
from rlfactory_nl2sql.connection import Connection, Failure, QueryError, QueryLimits, TableRows
from rlfactory_nl2sql.databases.reference import DatabaseRef, connect
from rlfactory_nl2sql.instances.scratch import Checks
from rlfactory_nl2sql.schema import Column, ForeignKey, Table
from sql_databases import make_file, make_mysql, make_postgres

from rlfactory_core.errors import BackendError

LIMITS = QueryLimits(seconds=5.0, rows=1000, bytes=100_000, memory_mb=256)
SHORT = QueryLimits(seconds=0.3, rows=1000, bytes=100_000, memory_mb=256)
KINDS = ["sqlite", "postgres", pytest.param("mysql", marks=pytest.mark.slow)]
VARIED: TableRows = {
    "singer": [(5, "Eve", None, None), (6, "Eve", "e@x", None)],
    "song": [(9, 5, "Nine", -1), (8, None, "Eight", None)],  # -1: varied databases do not enforce CHECKs
    "sings": [(5, 9)],
}
ENDLESS = "SELECT count(*) FROM note a, note b, note c, note d, note e WHERE a.text < b.text AND c.text < d.text"

WRITES = [
    "INSERT INTO singer VALUES (9, 'x', NULL, NULL)",
    "UPDATE singer SET name = 'x'",
    "DELETE FROM sings",
    "DROP TABLE sings",
    "DROP VIEW stars",
    "CREATE TABLE x (a INTEGER)",
    "CREATE TABLE x AS SELECT * FROM singer",
    "SELECT * INTO x FROM singer",
    "WITH gone AS (DELETE FROM sings RETURNING *) SELECT * FROM gone",
    "SELECT 1; DELETE FROM sings",
    "ALTER TABLE singer ADD COLUMN x INTEGER",
    "BEGIN",
    "COMMIT",
    "",
]


@pytest.fixture(scope="module", params=KINDS)
def ref(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DatabaseRef:
    kind: str = request.param
    if kind == "sqlite":
        return make_file(tmp_path_factory.mktemp("music") / "music.db")
    if kind == "postgres":
        return make_postgres(request.getfixturevalue("postgres"))
    return make_mysql(request.getfixturevalue("mariadb"))


@pytest.fixture(scope="module")
def given(ref: DatabaseRef) -> Iterator[Connection]:
    connection = connect(ref, LIMITS)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def varied(given: Connection) -> Iterator[Connection]:
    connection = given.instance(VARIED)
    yield connection
    connection.close()


@pytest.mark.slow
def test_the_schema_has_the_conditions_of_checks(given: Connection) -> None:
    song = next(table for table in given.schema().tables if table.name == "song")
    checks = Checks(song)
    place = next(place for place, column in enumerate(song.columns) if column.name == "seconds")
    assert [checks.allows(place, seconds) for seconds in (1, 0, -1, None)] == [True, False, False, True]
    checks.close()


@pytest.mark.parametrize(
    ("stored", "dialect"),
    [
        ("((sex = ANY (ARRAY['M'::bpchar, 'F'::bpchar])))", "postgres"),
        ("(((sex)::text = ANY ((ARRAY['M'::character varying, 'F'::character varying])::text[])))", "postgres"),
        ("(`sex` in (_utf8mb4'M',_utf8mb4'F'))", "mysql"),
        ("`sex` in ('M','F')", "mysql"),
    ],
)
def test_lists_in_checks_are_read_as_each_database_stores_them(stored: str, dialect: str) -> None:
    server = pytest.importorskip("rlfactory_nl2sql.databases.server", reason="the extra postgresql is not installed")
    condition = server.condition(stored, dialect)
    checks = Checks(Table("artist", (Column("sex", "CHAR(1)", True),), checks=(condition,)))
    assert [checks.allows(0, sex) for sex in ("M", "F", "X")] == [True, True, False]
    checks.close()


@pytest.fixture(params=["given", "varied"])
def either(request: pytest.FixtureRequest, given: Connection, varied: Connection) -> Connection:
    return given if request.param == "given" else varied


def all_rows(connection: Connection) -> list[list[str]]:
    tables = ("singer", "song", "sings", "note", "stars")
    return [sorted(map(repr, connection.query(f"SELECT * FROM {name}", LIMITS).rows)) for name in tables]


def failure(connection: Connection, sql: str, limits: QueryLimits = LIMITS) -> Failure:
    with pytest.raises(QueryError) as caught:
        connection.query(sql, limits)
    assert pickle.loads(pickle.dumps(caught.value)).failure is caught.value.failure
    for secret in (PASSWORD, "127.0.0.1", "/tmp", "rlfactory_", "reader"):
        assert secret not in str(caught.value)
    return caught.value.failure


def test_a_query_gives_columns_and_rows_as_they_are(given: Connection) -> None:
    result = given.query("SELECT id, name, id FROM singer WHERE email IS NULL OR id = 1 ORDER BY id DESC;", LIMITS)

    assert [name.lower() for name in result.columns] == ["id", "name", "id"]
    assert result.rows == ((2, "Bo", 2), (1, "Ada", 1))
    assert pickle.loads(pickle.dumps(result)) == result


def test_a_result_without_rows_has_its_columns(either: Connection) -> None:
    assert either.query("SELECT title AS t, 1 AS one FROM song WHERE id > 100", LIMITS).columns == ("t", "one")


def test_the_schema_tells_keys_and_views(given: Connection) -> None:
    schema = given.schema()

    assert sorted(table.name for table in schema.tables) == ["note", "singer", "sings", "song", "stars", "sung"]
    assert sorted(table.name for table in schema.tables if table.view) == ["stars", "sung"]
    singer, song, sings = (schema.table(name) for name in ("singer", "SONG", "sings"))
    assert singer is not None
    assert song is not None
    assert sings is not None
    assert [(column.name, column.nullable) for column in singer.columns][1:3] == [("name", False), ("email", True)]
    assert singer.columns[1].type == "VARCHAR(40)"
    assert singer.primary_key == ("id",)
    assert singer.unique == (("email",),)
    assert song.foreign_keys == (ForeignKey(("singer_id",), "singer", ("id",)),)
    assert song.unique == ()
    assert sings.primary_key == ("song_id", "singer_id")
    stars = schema.table("stars")
    assert stars is not None
    assert [column.name for column in stars.columns] == ["name", "songs"]


def test_a_copy_has_the_schema_of_the_given_one(given: Connection, varied: Connection) -> None:
    assert {table.name for table in varied.schema().tables} == {table.name for table in given.schema().tables}


def test_a_small_table_is_read_whole(given: Connection) -> None:
    assert sorted(given.read("sings", 10)) == [(1, 1), (2, 1), (2, 2)]
    assert [row[:3] for row in sorted(given.read("singer", 3))] == [
        (1, "Ada", "ada@x"),
        (2, "Bo", None),
        (3, "Cy", "cy@x"),
    ]


def test_a_large_table_is_read_in_a_sample_spread_over_it(given: Connection) -> None:
    sample = given.read("note", 7)

    assert 4 <= len(sample) <= 7
    numbers = sorted(int(str(text).removeprefix("note ")) for (text,) in sample)
    assert numbers[0] < 50 <= numbers[-1]
    assert given.read("note", 7) == sample


def test_a_view_can_be_read(given: Connection) -> None:
    assert sorted(given.read("stars", 5)) == [("Ada", 2), ("Bo", 1)]


def test_a_copy_holds_its_own_rows_and_views_over_them(given: Connection, varied: Connection) -> None:
    before = all_rows(given)

    assert varied.query("SELECT id FROM song ORDER BY id", LIMITS).rows == ((8,), (9,))
    assert varied.query("SELECT count(*) FROM note", LIMITS).rows == ((0,),)
    assert varied.query("SELECT * FROM stars", LIMITS).rows == (("Eve", 1),)
    assert all_rows(given) == before


def test_a_copy_can_name_a_table_several_times(varied: Connection) -> None:
    sql = (
        "WITH s AS (SELECT * FROM singer) SELECT a.id FROM singer a JOIN s b ON a.name = b.name JOIN s c ON c.id = a.id"
    )

    assert len(varied.query(sql, LIMITS).rows) == 4


def test_a_row_that_no_database_can_hold_makes_no_copy(given: Connection) -> None:
    with pytest.raises(BackendError, match="cannot be made"):
        given.instance({"note": [("half of a character: \ud800",)]})


def test_copies_are_independent_and_a_copy_makes_more(given: Connection, varied: Connection) -> None:
    with_one = varied.instance({"singer": [(1, "Zoe", None, None)]})
    try:
        assert with_one.query("SELECT name FROM singer", LIMITS).rows == (("Zoe",),)
        assert varied.query("SELECT count(*) FROM singer", LIMITS).rows == ((2,),)
    finally:
        with_one.close()
    assert varied.query("SELECT count(*) FROM singer", LIMITS).rows == ((2,),)
    assert given.query("SELECT count(*) FROM singer", LIMITS).rows == ((3,),)


def test_what_was_read_goes_into_a_copy_as_it_was(given: Connection) -> None:
    data = {name: given.read(name, 100) for name in ("singer", "song", "sings", "note")}
    copy = given.instance(data)
    try:
        assert all_rows(copy) == all_rows(given)
    finally:
        copy.close()


def test_limits_end_a_query_and_the_connection_lives_on(either: Connection, given: Connection) -> None:
    pairs = "SELECT a.n FROM (SELECT 1 AS n UNION ALL SELECT 2) a"
    many = pairs + "".join(f", (SELECT 1 AS n UNION ALL SELECT 2) b{number}" for number in range(12))

    assert failure(either, many) is Failure.ROWS
    assert failure(either, many, QueryLimits(rows=10_000, bytes=20_000)) is Failure.BYTES
    assert either.query("SELECT 1", LIMITS).rows == ((1,),)
    assert failure(given, ENDLESS, SHORT) is Failure.DEADLINE
    assert given.query("SELECT 1", LIMITS).rows == ((1,),)


def test_a_wrong_query_is_answered_with_what_is_wrong(either: Connection) -> None:
    assert failure(either, "SELECT nosuch FROM singer") is Failure.ERROR
    assert failure(either, "SELECT * FROM nowhere") is Failure.ERROR
    assert failure(either, "SELEC 1") is Failure.ERROR
    assert failure(either, "SELECT 'open") is Failure.ERROR
    assert failure(either, "SELECT '\ud800' FROM singer") is Failure.ERROR
    with pytest.raises(QueryError, match="nosuch"):
        either.query("SELECT nosuch FROM singer", LIMITS)


@pytest.mark.parametrize("sql", WRITES)
def test_nothing_can_be_written(sql: str, either: Connection) -> None:
    before = all_rows(either)

    assert failure(either, sql) in (Failure.REFUSED, Failure.ERROR)
    assert all_rows(either) == before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 100_000 + "1" + ")" * 100_000,
        "SELECT " + "NOT " * 50_000 + "1",
        "SELECT 1" + " + 1" * 50_000,
        "SELECT '" + "x" * 10_000_000 + "'",
        "SELECT 1 WHERE " + " OR ".join(["1 = 1"] * 30_000),
        " UNION ALL ".join(["SELECT 1"] * 20_000),
        "SELECT * FROM " + "(SELECT * FROM " * 2_000 + "singer" + ") x" * 2_000,
        "SELECT " + "CASE WHEN 1 = 1 THEN " * 2_000 + "1" + " END" * 2_000,
    ],
    ids=range(8),
)
def test_monstrous_sql_ends_at_once(sql: str, given: Connection) -> None:
    with modest_effort():
        assert failure(given, sql) in (Failure.ERROR, Failure.BYTES)
    assert given.query("SELECT 1", LIMITS).rows == ((1,),)


def test_a_connection_can_be_closed_twice(ref: DatabaseRef) -> None:
    connection = connect(ref, LIMITS)

    connection.close()
    connection.close()
