"""A gold query shows its ties: which of its rows may change places, and which its LIMIT may choose instead."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from rlfactory_nl2sql.checks.ordering import cut, is_ordered, tie_breaks
from rlfactory_nl2sql.checks.parsing import NAMES, parse_query
from rlfactory_nl2sql.comparison.compare import Answer
from rlfactory_nl2sql.connection import QueryLimits, Rows
from rlfactory_nl2sql.databases.reference import DatabaseRef
from rlfactory_nl2sql.schema import Schema
from rlfactory_nl2sql.verification.connections import Connections
from rlfactory_nl2sql.verification.gold import GoldJob, VerifyOptions


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ties") / "singers.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE singer (id INTEGER, name TEXT, age REAL, band_id INTEGER)")
        connection.execute("CREATE TABLE band (id INTEGER, title TEXT)")
        draw = random.Random(0)
        people = [
            (i, draw.choice(["Ann", "ann", "Bo", None]), draw.choice([20, 30, 30.5, None]), i % 3) for i in range(30)
        ]
        connection.executemany("INSERT INTO singer VALUES (?, ?, ?, ?)", people)
        connection.executemany("INSERT INTO band VALUES (?, ?)", [(0, "X"), (1, "Y"), (2, "Y")])
        connection.commit()
    return path


def answer(sql: str, database: Path) -> Answer:
    """What is known of a gold query's answer on the given database."""
    ref = DatabaseRef("sqlite", str(database))
    connections = Connections()
    try:
        gold = connections.use(ref, QueryLimits(), GoldJob(ref, sql, VerifyOptions(instances=1)).gold)
        (given,) = gold.instances
    finally:
        connections.close()
    assert given.answer is not None
    return given.answer


def ties(found: Answer) -> list[tuple[tuple[object, ...], ...]]:
    return [found.result.rows[start:end] for start, end in pairwise((0, *found.ends))]


def rows(sql: str, database: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchall()


# Each query, and the expressions that it sorts by, as a query for these and for its columns.
ORDERED = {
    "a column": ("SELECT name FROM singer ORDER BY age LIMIT 4", "SELECT age, name FROM singer"),
    "two": (
        "SELECT name, age FROM singer ORDER BY age DESC, band_id LIMIT 9 OFFSET 3",
        "SELECT quote(age) || band_id, name, age FROM singer",
    ),
    "NULLS": ("SELECT id FROM singer ORDER BY age NULLS LAST LIMIT 25", "SELECT age, id FROM singer"),
    "a place": ("SELECT id, age / 2 FROM singer ORDER BY 2 DESC LIMIT 5", "SELECT age, id, age / 2 FROM singer"),
    "a name": ("SELECT id, age * 2 AS twice FROM singer ORDER BY twice LIMIT 5", "SELECT age, id, age * 2 FROM singer"),
    "a name that hides a column": (
        "SELECT id, -age AS age FROM singer ORDER BY age LIMIT 5",
        "SELECT age, id, -age FROM singer",
    ),
    "a name within": (
        "SELECT id, age * 2 AS twice FROM singer ORDER BY twice % 7, -twice LIMIT 5",
        "SELECT age, id, age * 2 FROM singer",
    ),
    "MySQL's offset": ("SELECT id FROM singer ORDER BY band_id LIMIT 12, 6", "SELECT band_id, id FROM singer"),
    "a collation": (
        "SELECT id FROM singer ORDER BY name COLLATE NOCASE LIMIT 12",
        "SELECT lower(name), id FROM singer",
    ),
    "CASE": (
        "SELECT id FROM singer ORDER BY CASE WHEN age > 25 THEN 1 ELSE 0 END LIMIT 12",
        "SELECT coalesce(age, 0) > 25, id FROM singer",
    ),
    "a subquery": (
        "SELECT id FROM singer s ORDER BY (SELECT title FROM band b WHERE b.id = s.band_id) LIMIT 12",
        "SELECT band_id > 0, id FROM singer",
    ),
    "DISTINCT": (
        "SELECT DISTINCT age, band_id FROM singer ORDER BY age LIMIT 5",
        "SELECT DISTINCT age, age, band_id FROM singer",
    ),
    "DISTINCT without the key": (
        "SELECT DISTINCT band_id FROM singer ORDER BY band_id % 2",
        "SELECT DISTINCT band_id % 2, band_id FROM singer",
    ),
    "a star": ("SELECT * FROM singer ORDER BY age LIMIT 7", "SELECT age, * FROM singer"),
    "a star over a query": (
        "SELECT * FROM (SELECT id, age FROM singer) ORDER BY age LIMIT 7",
        "SELECT age, id, age FROM singer",
    ),
    "equal names": (
        "SELECT s.id, b.id FROM singer s JOIN band b ON b.id = band_id ORDER BY age LIMIT 3",
        "SELECT age, id, band_id FROM singer",
    ),
    "UNION": (
        "SELECT name AS n, band_id FROM singer UNION SELECT title, id FROM band ORDER BY n DESC LIMIT 4",
        "SELECT name, name, band_id FROM singer UNION SELECT title, title, id FROM band",
    ),
    "UNION by an expression": (
        "SELECT id FROM singer UNION SELECT id FROM band ORDER BY 1 LIMIT 4",
        "SELECT id, id FROM singer",
    ),
    "a window": (
        "SELECT id, RANK() OVER (ORDER BY age) AS r FROM singer ORDER BY r LIMIT 7",
        "SELECT age, id, RANK() OVER (ORDER BY age) FROM singer",
    ),
    "no limit": ("SELECT id FROM singer ORDER BY age;", "SELECT age, id FROM singer"),
    "a comment": (
        "SELECT id /* ORDER BY 1 */ FROM singer ORDER BY age -- LIMIT 3\n LIMIT 5 -- the end",
        "SELECT age, id FROM singer",
    ),
    "VALUES": (
        "SELECT * FROM (VALUES (1, 2), (1, 3), (0, 4)) ORDER BY column1",
        "VALUES (1, 1, 2), (1, 1, 3), (0, 0, 4)",
    ),
}


@pytest.mark.parametrize(("sql", "keyed"), ORDERED.values(), ids=ORDERED.keys())
def test_rows_of_equal_sort_keys_are_a_tie(sql: str, keyed: str, database: Path) -> None:
    found, cut_rows = answer(sql, database), cut(parse_query(sql, "sqlite")).wider.sql
    by_key: dict[object, list[tuple[object, ...]]] = {}
    for key, *row in rows(keyed, database):
        by_key.setdefault(key, []).append(tuple(row))
    groups = [Counter(group) for group in by_key.values()]
    assert Counter(found.result.rows) == Counter(rows(sql, database))
    if found.tied:  # a tie goes on behind the last row, or before the first
        assert any(not group <= Counter(found.result.rows) and group & Counter(found.result.rows) for group in groups)
    else:
        assert [tie for tie in ties(found) if Counter(tie) not in groups and len(set(tie)) > 1] == []
    assert len(rows(cut_rows, database)) >= len(found.result.rows)


def test_columns_have_the_names_of_the_query(database: Path) -> None:
    sql = "SELECT id + (SELECT id FROM singer ORDER BY id LIMIT 1) FROM singer ORDER BY id LIMIT 1"
    assert answer(sql, database).result.columns == ("id + (SELECT id FROM singer ORDER BY id LIMIT 1)",)


def test_where_a_limit_cuts_a_tie_the_answer_says_nothing(database: Path) -> None:
    for sql in (
        "SELECT id, name FROM singer ORDER BY name COLLATE NOCASE LIMIT 20 OFFSET 1",
        "SELECT id FROM singer ORDER BY band_id LIMIT 6 OFFSET 12",
        "SELECT id FROM singer WHERE age = 30 LIMIT 3 OFFSET 1",
        "SELECT id FROM singer ORDER BY RANDOM() LIMIT 3",
    ):
        assert answer(sql, database).tied, sql


def test_rows_that_look_the_same_may_be_tied(database: Path) -> None:
    """So a prediction may have all of them, as ``x = (SELECT max(x) ...)`` gives them, but no others."""
    found = answer("SELECT name FROM singer WHERE name = 'Bo' ORDER BY age DESC LIMIT 1", database)
    given = [Rows(("name",), tuple((name,) for name in names)) for names in (("Bo", "Bo"), ("Bo", "Ann"), ())]
    assert [found.may_repeat(one) for one in given] == [True, False, False]
    assert not found.tied


def test_without_order_all_rows_are_one_tie(database: Path) -> None:
    assert len(ties(answer("SELECT id FROM singer", database))) == 1
    assert len(ties(answer("SELECT id FROM singer ORDER BY RANDOM()", database))) == 1
    assert len(ties(answer("SELECT id FROM singer ORDER BY age, RANDOM()", database))) == 4


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM singer ORDER BY age LIMIT 1 + 2",
        "SELECT name FROM singer ORDER BY age LIMIT (SELECT COUNT(*) FROM band)",
        "SELECT name FROM singer WHERE id IN (SELECT id FROM singer ORDER BY age LIMIT 3)",
        "SELECT id FROM singer WHERE age = (SELECT age FROM singer ORDER BY age IS NULL LIMIT 1) ORDER BY name",
        "SELECT name FROM (SELECT name, ROW_NUMBER() OVER (ORDER BY age) AS n FROM singer) WHERE n = 2",
    ],
)
def test_where_only_some_of_the_right_answers_are_known_it_says_nothing_against_a_prediction(
    sql: str, database: Path
) -> None:
    assert answer(sql, database).tied


def test_neither_ties_nor_order_are_made_up(database: Path) -> None:
    for sql in (
        "SELECT id FROM singer ORDER BY id LIMIT 2 OFFSET 1",
        "SELECT title FROM band ORDER BY id DESC LIMIT 2",
    ):
        found = answer(sql, database)
        assert not found.tied
        assert [len(tie) for tie in ties(found)] == [1, 1]
    query = parse_query("SELECT id FROM singer WHERE id IN (SELECT id FROM singer ORDER BY age)", "sqlite")
    assert (is_ordered(query), tie_breaks(query, Schema(()), 1), cut(query).wider) == (False, [], query)


def test_fetch_first_is_a_limit() -> None:
    for sql, limit, offset in (("FETCH FIRST 3 ROWS ONLY", 3, 0), ("OFFSET 2 ROWS FETCH NEXT ROW ONLY", 1, 2)):
        found = cut(parse_query(f"SELECT name FROM singer ORDER BY age {sql}", "postgres"))
        assert (found.limit, found.offset) == (limit, offset)
        assert found.wider.sql == "SELECT name FROM singer ORDER BY age LIMIT 4"
    with_ties = parse_query("SELECT name FROM singer ORDER BY age FETCH FIRST 3 ROWS WITH TIES", "postgres")
    assert cut(with_ties).wider == with_ties


@pytest.mark.parametrize("dialect", NAMES)
def test_every_dialect(dialect: str) -> None:
    query = parse_query("SELECT s.name AS n FROM singer AS s ORDER BY n DESC LIMIT 3 OFFSET 2", dialect)
    rising, falling = tie_breaks(query, Schema(()), 1)
    nulls = {"postgres": (" NULLS FIRST", " NULLS LAST")}.get(dialect, ("", ""))
    assert rising == f"SELECT s.name AS n FROM singer AS s ORDER BY n DESC, 1 ASC{nulls[0]} LIMIT 3 OFFSET 2"
    assert falling == f"SELECT s.name AS n FROM singer AS s ORDER BY n DESC, 1 DESC{nulls[1]} LIMIT 3 OFFSET 2"
    assert cut(query).wider.sql.endswith("LIMIT 6")


def test_a_declared_collation_ties_too(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE label (id INTEGER, name TEXT COLLATE NOCASE)")
        connection.execute("INSERT INTO label VALUES (1, 'b'), (2, 'a'), (3, 'A')")
        connection.commit()
    for sql in ("SELECT id FROM label ORDER BY name", "SELECT name FROM label ORDER BY name", "SELECT name FROM label"):
        sizes = [len(tie) for tie in ties(answer(sql, path))]
        assert sizes == ([2, 1] if "ORDER" in sql else [3])
