"""A gold query shows its ties: its rows come in order, ranked as the database itself ranks them, without the cut."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from rlfactory_nl2sql.checks.ordering import Untied, untie
from rlfactory_nl2sql.checks.parsing import NAMES, parse_query
from rlfactory_nl2sql.schema import Column, Schema, Table

SCHEMA = Schema(
    (
        Table("singer", tuple(Column(name, "") for name in ("id", "name", "age", "band_id"))),
        Table("band", tuple(Column(name, "") for name in ("id", "title"))),
    )
)


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE singer (id INTEGER, name TEXT, age REAL, band_id INTEGER)")
        connection.execute("CREATE TABLE band (id INTEGER, title TEXT)")
        draw = random.Random(0)
        people = [
            (i, draw.choice(["Ann", "ann", "Bo", None]), draw.choice([20, 30, 30.5, None]), i % 3) for i in range(30)
        ]
        connection.executemany("INSERT INTO singer VALUES (?, ?, ?, ?)", people)
        connection.executemany("INSERT INTO band VALUES (?, ?)", [(0, "X"), (1, "Y"), (2, "Y")])
        yield connection


def of(sql: str, dialect: str = "sqlite") -> Untied | None:
    return untie(parse_query(sql, dialect), SCHEMA)


ORDERED = {
    "a column": "SELECT name FROM singer ORDER BY age LIMIT 4",
    "two": "SELECT name, age FROM singer ORDER BY age DESC, name LIMIT 9 OFFSET 3",
    "NULLS": "SELECT id FROM singer ORDER BY age NULLS LAST LIMIT 25",
    "a place": "SELECT id, age / 2 FROM singer ORDER BY 2 DESC LIMIT 5",
    "a name": "SELECT id, age * 2 AS twice FROM singer ORDER BY twice LIMIT 5",
    "a name that hides a column": "SELECT id, -age AS age FROM singer ORDER BY age LIMIT 5",
    "a name within": "SELECT id, age * 2 AS twice FROM singer ORDER BY twice % 7, -twice LIMIT 5",
    "MySQL's offset": "SELECT id FROM singer ORDER BY band_id LIMIT 12, 6",
    "an aggregate": "SELECT band_id FROM singer GROUP BY band_id ORDER BY COUNT(age) DESC LIMIT 1",
    "a named aggregate": "SELECT age, COUNT(*) n FROM singer GROUP BY age ORDER BY n DESC LIMIT 2",
    "bare columns": "SELECT band_id, name, MAX(age) FROM singer GROUP BY band_id ORDER BY name LIMIT 2",
    "a collation": "SELECT id FROM singer ORDER BY name COLLATE NOCASE LIMIT 12",
    "CASE": "SELECT id FROM singer ORDER BY CASE WHEN age > 25 THEN 1 ELSE 0 END LIMIT 12",
    "a subquery": "SELECT id FROM singer s ORDER BY (SELECT title FROM band b WHERE b.id = s.band_id) LIMIT 12",
    "a join": "SELECT s.id FROM singer s JOIN band b ON s.band_id = b.id ORDER BY b.title LIMIT 12",
    "DISTINCT": "SELECT DISTINCT age, band_id FROM singer ORDER BY age LIMIT 5",
    "DISTINCT by place": "SELECT DISTINCT age FROM singer ORDER BY 1 LIMIT 2",
    "a star": "SELECT * FROM singer ORDER BY age, band_id LIMIT 7",
    "UNION": "SELECT name AS n, band_id FROM singer UNION SELECT title, id FROM band ORDER BY n DESC LIMIT 4",
    "UNION by place": "SELECT name, band_id FROM singer UNION ALL SELECT title, id FROM band ORDER BY 2 LIMIT 14",
    "a window": "SELECT id, RANK() OVER (ORDER BY age) AS r FROM singer ORDER BY r LIMIT 7",
    "a CTE": "WITH c AS (SELECT COUNT(*) AS n FROM singer GROUP BY age LIMIT 3) SELECT n FROM c ORDER BY n LIMIT 2",
    "FROM within": "SELECT id, age IS DISTINCT FROM 30 AS d FROM singer ORDER BY d, age LIMIT 9",
    "no limit": "SELECT id FROM singer ORDER BY age;",
    "a comment": "SELECT id /* ORDER BY 1 */ FROM singer ORDER BY age -- LIMIT 3\n LIMIT 5 -- the end",
}


@pytest.mark.parametrize("sql", ORDERED.values(), ids=ORDERED.keys())
def test_cut_as_it_says_it_is_an_answer_of_the_query(sql: str, database: sqlite3.Connection) -> None:
    untied = of(sql)
    assert untied is not None
    assert untied.keys
    found = database.execute(untied.sql).fetchall()
    answer = database.execute(sql).fetchall()

    kept = found[untied.offset :][: untied.limit]
    assert len(kept) == len(answer)
    ranks = [row[-1] for row in found]
    assert ranks == sorted(ranks)
    # Each row of the answer is one of those that stand, by their ranks, where it stands.
    for row, (*_, rank) in zip(answer, kept, strict=True):
        assert row in [one[: -untied.keys] for one in found if one[-1] == rank]


def test_rows_of_one_rank_are_tied(database: sqlite3.Connection) -> None:
    untied = of("SELECT id, name FROM singer ORDER BY name COLLATE NOCASE LIMIT 20")
    assert untied is not None
    ranks: dict[int, set[str | None]] = {}
    for _, name, rank in database.execute(untied.sql):
        ranks.setdefault(rank, set()).add(name)

    assert ranks == {1: {None}, 2: {"Ann", "ann"}, 3: {"Bo"}}


def test_only_rows_that_an_answer_can_hold_are_fetched(database: sqlite3.Connection) -> None:
    untied = of("SELECT id FROM singer ORDER BY id LIMIT 2 OFFSET 1")
    assert untied is not None

    assert database.execute(untied.sql).fetchall() == [(0, 1), (1, 2), (2, 3)]


def test_without_order_there_is_only_the_cut(database: sqlite3.Connection) -> None:
    untied = of("SELECT id FROM singer WHERE age = 30 LIMIT 3 OFFSET 1")
    assert untied == Untied("SELECT id FROM singer WHERE age = 30", 0, 3, 1)
    assert of("SELECT id FROM singer") == Untied("SELECT id FROM singer", 0, None, 0)
    assert len(database.execute(untied.sql).fetchall()) > 3


def test_a_random_order_is_no_order() -> None:
    assert of("SELECT id FROM singer ORDER BY RANDOM() LIMIT 3") == Untied(
        "SELECT id FROM singer ORDER BY RANDOM()", 0, 3, 0
    )
    untied = of("SELECT id FROM singer ORDER BY age, RANDOM()")
    assert untied is not None
    assert "RANDOM" not in untied.sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT DISTINCT name FROM singer ORDER BY age",  # the rank would make rows differ
        "SELECT name FROM singer ORDER BY age LIMIT 1 + 2",
        "SELECT name FROM singer ORDER BY age LIMIT (SELECT COUNT(*) FROM band)",
        "SELECT name FROM singer ORDER BY age LIMIT ?",
        "SELECT name FROM singer ORDER BY (1) LIMIT 3",
        "SELECT * FROM singer ORDER BY 2 LIMIT 3",
        "SELECT name FROM singer ORDER BY COUNT(*) LIMIT 3",  # the aggregate would make it one row
        "SELECT id, name AS age FROM singer ORDER BY age || 'x' LIMIT 3",  # of which of the two?
        "SELECT id, -age AS m FROM singer ORDER BY (SELECT m) LIMIT 3",
        "SELECT name FROM singer UNION SELECT title FROM band ORDER BY UPPER(name) LIMIT 3",
        "(SELECT name FROM singer ORDER BY age) LIMIT 3",
        "VALUES (1), (2)",
    ],
)
def test_in_doubt_it_is_left_alone(sql: str) -> None:
    assert of(sql) is None


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("SELECT name FROM singer ORDER BY age FETCH FIRST 3 ROWS WITH TIES", "postgres"),
        ("SELECT DISTINCT ON (age) name, age FROM singer ORDER BY age LIMIT 3", "postgres"),
    ],
)
def test_nor_what_only_one_dialect_has(sql: str, dialect: str) -> None:
    assert of(sql, dialect) is None


@pytest.mark.parametrize("dialect", NAMES)
def test_every_dialect(dialect: str) -> None:
    untied = of("SELECT s.name AS n FROM singer AS s ORDER BY n DESC, s.age LIMIT 3 OFFSET 2", dialect)

    assert untied == Untied(
        "SELECT * FROM (SELECT untied.*, DENSE_RANK() OVER (ORDER BY untied.n DESC, untied.untied_1) AS untied_rank "
        "FROM (SELECT s.name AS n, s.age AS untied_1 FROM singer AS s) AS untied) AS untied_all "
        "WHERE untied_rank <= 5 ORDER BY untied_rank",
        keys=2,
        limit=3,
        offset=2,
    )


def test_fetch_first_is_a_limit() -> None:
    for sql, limit in (("FETCH FIRST 3 ROWS ONLY", 3), ("OFFSET 2 ROWS FETCH NEXT ROW ONLY", 1)):
        untied = of(f"SELECT name FROM singer ORDER BY age {sql}", "postgres")
        assert untied is not None
        assert untied.limit == limit


def test_mysql_needs_different_names_in_a_derived_table() -> None:
    untied = of("SELECT s.id, b.id FROM singer s JOIN band b ON b.id = band_id ORDER BY age LIMIT 3", "mysql")
    assert untied is not None
    assert "(SELECT s.id, b.id AS id_2, age AS untied_1" in untied.sql


def test_a_declared_collation_ties_too() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE singer (id INTEGER, name TEXT COLLATE NOCASE)")
        connection.execute("INSERT INTO singer VALUES (1, 'b'), (2, 'a'), (3, 'A')")
        for sql in ("SELECT id FROM singer ORDER BY name", "SELECT DISTINCT id, name FROM singer ORDER BY name"):
            untied = of(sql)
            assert untied is not None
            assert [row[-1] for row in connection.execute(untied.sql)] == [1, 1, 2]
