"""Which queries are one in form, and which must never be."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from effort import modest_effort
from rlfactory_nl2sql.checks.canonical import canonical
from rlfactory_nl2sql.checks.parsing import NAMES, parse_query
from rlfactory_nl2sql.schema import Column, Schema, Table


def table(name: str, *columns: str) -> Table:
    return Table(name, tuple(Column(column, "TEXT") for column in columns))


SCHEMA = Schema((table("singer", "id", "name", "age", "band_id"), table("band", "id", "title", "founded")))


def form(sql: str, dialect: str = "sqlite") -> str:
    text = canonical(parse_query(sql, dialect), SCHEMA)
    assert canonical(parse_query(text, dialect), SCHEMA) == text
    return text


SAME = [
    [
        "SELECT name FROM singer",
        "select  name\nfrom singer -- all of them\n;",
        "SELECT singer.name FROM singer",
        "SELECT s.name AS n FROM singer AS s",
        "SELECT s.name n FROM singer s",
        "(SELECT name FROM singer)",
        "SELECT (name) FROM singer",
    ],
    ["SELECT name FROM singer WHERE age > 3 AND id = 1", "SELECT name FROM singer WHERE 1 = id AND (3 < age)"],
    [
        "SELECT 1 FROM singer WHERE id = 1 OR (age < 2 OR name = 'a')",
        "SELECT 1 FROM singer WHERE (name = 'a' OR id = 1) OR 2 > age",
    ],
    ["SELECT name FROM singer WHERE age BETWEEN 2 AND 4", "SELECT name FROM singer WHERE age <= 4 AND age >= 2"],
    ["SELECT name FROM singer WHERE id IN (1, 2, 3)", "SELECT name FROM singer WHERE id IN (3, 1, 2)"],
    ["SELECT name FROM singer WHERE age <> 3", "SELECT name FROM singer WHERE 3 != age"],
    [
        "SELECT s.name, b.title FROM singer s JOIN band b ON s.band_id = b.id WHERE b.founded > 1990",
        "SELECT name, title FROM singer INNER JOIN band ON band.id = band_id AND founded > 1990",
        "SELECT name, title FROM singer, band WHERE founded > 1990 AND singer.band_id = band.id",
        "SELECT name, title FROM singer CROSS JOIN band WHERE 1990 < founded AND band.id = band_id",
    ],
    [
        "SELECT name FROM singer LEFT JOIN band ON band.id = band_id",
        "SELECT x.name FROM singer x LEFT OUTER JOIN band y ON x.band_id = y.id",
    ],
    [
        "SELECT age, COUNT(*) AS n FROM singer GROUP BY age HAVING n > 2 ORDER BY n DESC, 1",
        "SELECT s.age, count(*) FROM singer s GROUP BY 1 HAVING COUNT(*) > 2 ORDER BY 2 DESC, s.age ASC",
    ],
    ["SELECT age, name FROM singer GROUP BY age, name", "SELECT age, name FROM singer GROUP BY 2, 1"],
    [
        "SELECT name FROM singer WHERE id IN (SELECT x.id FROM band x)",
        "SELECT name FROM singer WHERE id IN (SELECT id AS i FROM band)",
    ],
    [
        "SELECT name FROM singer s WHERE EXISTS (SELECT 1 FROM band b WHERE b.id = s.band_id)",
        "SELECT name FROM singer WHERE EXISTS (SELECT 1 FROM band WHERE band_id = band.id)",
    ],
    [
        "WITH c AS (SELECT age AS a, COUNT(*) AS n FROM singer GROUP BY age) SELECT a FROM c WHERE n > 1",
        "WITH d(x, y) AS (SELECT age, COUNT(*) FROM singer GROUP BY age) SELECT d.x FROM d WHERE 1 < d.y",
    ],
    [
        "SELECT COUNT(*) FROM (SELECT (SELECT MAX(age) AS m FROM singer s) FROM band b)",
        "SELECT COUNT(*) FROM (SELECT (SELECT MAX(age) FROM singer) FROM band) AS x",
    ],
    ["SELECT x.n FROM (SELECT COUNT(*) AS n FROM singer) AS x", "SELECT m FROM (SELECT count(*) m FROM singer) y"],
    [
        "SELECT name FROM singer UNION SELECT title FROM band ORDER BY name",
        "SELECT name AS n FROM singer UNION SELECT title FROM band ORDER BY 1",
    ],
    ["SELECT name FROM singer LIMIT 5, 10", "SELECT name FROM singer LIMIT 10 OFFSET 5"],
    [
        "SELECT * FROM singer",
        "SELECT s.* FROM singer AS s",
        "SELECT id, name, age, band_id FROM singer",
        "SELECT singer.* FROM singer",
    ],
    ["SELECT name FROM singer JOIN band USING (id)", "SELECT name FROM singer AS s JOIN band AS b ON b.id = s.id"],
    [
        "SELECT 1 FROM singer WHERE EXISTS (SELECT 1 FROM band WHERE title = 'a') AND EXISTS (SELECT 2 FROM band)",
        "SELECT 1 FROM singer WHERE EXISTS (SELECT 2 FROM band) AND EXISTS (SELECT 1 FROM band WHERE title = 'a')",
    ],
    [
        "SELECT name FROM singer WHERE name = 'Joe'",
        'SELECT name FROM singer WHERE name = "Joe"',
        'SELECT "name" FROM singer WHERE [name] = "Joe"',
    ],
    [
        "SELECT (SELECT COUNT(*) FROM band b WHERE b.id = s.band_id) AS n FROM singer s ORDER BY n",
        "SELECT (SELECT COUNT(*) FROM band WHERE id = band_id) FROM singer ORDER BY 1",
    ],
]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("name = title", "title = name"),
        ("name > title", "title < name"),
        ("name BETWEEN title AND 'z'", "title <= name AND name <= 'z'"),
        ("name COLLATE NOCASE > title COLLATE BINARY", "title COLLATE BINARY < name COLLATE NOCASE"),
    ],
)
def test_the_left_side_decides_on_the_collation(one: str, other: str) -> None:
    singer, band = SCHEMA.tables
    collated = Schema((replace(singer, collated=True), band))
    queries = [parse_query(f"SELECT 1 FROM singer, band WHERE {condition}", "sqlite") for condition in (one, other)]
    assert len({canonical(query, collated) for query in queries}) == 2
    if "COLLATE" not in one:
        assert len({canonical(query, SCHEMA) for query in queries}) == 1


def test_a_value_beside_a_collated_column_may_stand_on_either_side() -> None:
    for collated in (False, True):
        schema = Schema(tuple(replace(table, collated=collated) for table in SCHEMA.tables))
        for one, other in (("name > 'a'", "'a' < name"), ("'a' = name COLLATE RTRIM", "name COLLATE RTRIM = 'a'")):
            queries = [parse_query(f"SELECT 1 FROM singer WHERE {condition}", "sqlite") for condition in (one, other)]
            assert len({canonical(query, schema) for query in queries}) == 1


@pytest.mark.parametrize("group", SAME, ids=lambda group: group[0])
def test_forms_of_one_query(group: list[str]) -> None:
    assert len({form(sql) for sql in group}) == 1, [form(sql) for sql in group]


DIFFERENT = [
    [
        "SELECT name FROM singer",
        "SELECT DISTINCT name FROM singer",
        "SELECT name FROM singer LIMIT 5",
        "SELECT age FROM singer",
        "SELECT name, name FROM singer",
        "SELECT name FROM singer ORDER BY name",
        "SELECT name FROM singer ORDER BY name DESC",
        "SELECT name FROM singer ORDER BY age",
        "SELECT 'name' FROM singer",
        "SELECT COUNT(name) FROM singer",
        "SELECT * FROM singer",
    ],
    ["SELECT name, age FROM singer", "SELECT age, name FROM singer"],
    [
        "SELECT 1 FROM singer WHERE age > 3",
        "SELECT 1 FROM singer WHERE age >= 3",
        "SELECT 1 FROM singer WHERE 3 > age",
        "SELECT 1 FROM singer WHERE age > 4",
        "SELECT 1 FROM singer WHERE age > '3'",
        "SELECT 1 FROM singer WHERE age > 3.0",
        "SELECT 1 FROM singer WHERE NOT age > 3",
        "SELECT 1 FROM singer WHERE age IS NULL",
        "SELECT 1 FROM singer WHERE age = 3",
    ],
    [
        "SELECT 1 FROM singer WHERE id = 1 AND age = 2 OR name = 'a'",
        "SELECT 1 FROM singer WHERE id = 1 AND (age = 2 OR name = 'a')",
    ],
    ["SELECT 10 - (4 - 3)", "SELECT (10 - 4) - 3", "SELECT 10 - 4 * 3"],
    [
        "SELECT 1 FROM singer WHERE name = 'a'",
        "SELECT 1 FROM singer WHERE name = 'A'",
        "SELECT 1 FROM singer WHERE name LIKE 'a'",
        "SELECT 1 FROM singer WHERE name = 'a' COLLATE NOCASE",
        "SELECT 1 FROM singer WHERE name = 'a '",
    ],
    [
        "SELECT 1 FROM singer s JOIN band b ON s.band_id = b.id",
        "SELECT 1 FROM singer s LEFT JOIN band b ON s.band_id = b.id",
        "SELECT 1 FROM band b LEFT JOIN singer s ON s.band_id = b.id",
        "SELECT 1 FROM singer s JOIN band b ON s.id = b.id",
        "SELECT 1 FROM singer s LEFT JOIN band b ON 1 WHERE s.band_id = b.id",
    ],
    [
        "SELECT a.name FROM singer a JOIN singer b ON a.id = b.age",
        "SELECT b.name FROM singer a JOIN singer b ON a.id = b.age",
    ],
    [
        "SELECT name FROM singer UNION SELECT title FROM band",
        "SELECT name FROM singer UNION ALL SELECT title FROM band",
        "SELECT name FROM singer EXCEPT SELECT title FROM band",
        "SELECT title FROM band EXCEPT SELECT name FROM singer",
    ],
    [
        "SELECT COUNT(*) FROM singer",
        "SELECT COUNT(age) FROM singer",
        "SELECT COUNT(DISTINCT age) FROM singer",
        "SELECT SUM(age) FROM singer",
    ],
    ["SELECT age FROM singer GROUP BY age", "SELECT age FROM singer GROUP BY age, name", "SELECT age FROM singer"],
    [
        "SELECT name FROM singer LIMIT 5",
        "SELECT name FROM singer LIMIT 5 OFFSET 1",
        "SELECT name FROM singer LIMIT 1 OFFSET 5",
    ],
    [
        "SELECT CAST(age AS DECIMAL) FROM singer",
        "SELECT CAST(age AS REAL) FROM singer",
        "SELECT CAST(age AS TEXT) FROM singer",
    ],
    [
        "SELECT 1 FROM singer WHERE EXISTS (SELECT 1 FROM band WHERE band.id = band_id)",
        "SELECT 1 FROM singer WHERE EXISTS (SELECT 1 FROM band WHERE band.id = band.id)",
        "SELECT 1 FROM singer WHERE NOT EXISTS (SELECT 1 FROM band WHERE band.id = band_id)",
    ],
    ["SELECT age + 1 AS age FROM singer ORDER BY age", "SELECT age + 1 AS x FROM singer ORDER BY age"],
    ["SELECT age + 1 AS age FROM singer WHERE age > 3", "SELECT age + 1 FROM singer WHERE age + 1 > 3"],
    [
        "SELECT COUNT(*) AS age FROM singer GROUP BY name HAVING age > 3",
        "SELECT COUNT(*) FROM singer GROUP BY name HAVING COUNT(*) > 3",
    ],
    [
        "SELECT 5 AS two, name FROM singer ORDER BY two",
        "SELECT 5 AS two, name FROM singer ORDER BY 5",
        "SELECT 5, name FROM singer ORDER BY 2",
    ],
    [
        "SELECT 1 FROM singer WHERE id IN (SELECT id FROM band)",
        "SELECT 1 FROM singer WHERE id NOT IN (SELECT id FROM band)",
        "SELECT 1 FROM singer WHERE id = (SELECT id FROM band)",
        "SELECT 1 FROM singer WHERE id IN ((SELECT id FROM band))",
    ],
    [
        "SELECT RANK() OVER (ORDER BY age) FROM singer",
        "SELECT RANK() OVER (ORDER BY age DESC) FROM singer",
        "SELECT RANK() OVER (PARTITION BY name ORDER BY age) FROM singer",
        "SELECT ROW_NUMBER() OVER (ORDER BY age) FROM singer",
    ],
]


@pytest.mark.parametrize("group", DIFFERENT, ids=lambda group: group[0])
def test_queries_that_differ_in_meaning(group: list[str]) -> None:
    forms = [form(sql) for sql in group]

    assert [pair for pair in itertools.combinations(forms, 2) if pair[0] == pair[1]] == []


@pytest.mark.parametrize("dialect", NAMES)
def test_every_dialect(dialect: str) -> None:
    first = form(
        "SELECT s.name FROM singer AS s JOIN band AS b ON s.band_id = b.id ORDER BY b.founded LIMIT 3", dialect
    )
    second = form("select name from singer join band on band.id = band_id order by founded limit 3", dialect)

    assert first == second
    assert "_t1_2" in first


@pytest.mark.parametrize(
    ("first", "second", "dialect"),
    [
        ("SELECT singer FROM singer", "SELECT x FROM singer AS x", "duckdb"),
        ('SELECT "Name" FROM singer', "SELECT name FROM singer", "postgres"),
        ("SELECT name FROM Singer", "SELECT name FROM singer", "mysql"),
        ("SELECT 1 FROM a, b RIGHT JOIN c ON true", "SELECT 1 FROM a CROSS JOIN b RIGHT JOIN c ON true", "postgres"),
        ("SELECT list_transform(l, x -> x + y) FROM t", "SELECT list_transform(l, y -> y + y) FROM t", "duckdb"),
    ],
)
def test_where_it_is_not_sure_they_differ(first: str, second: str, dialect: str) -> None:
    assert form(first, dialect) != form(second, dialect)


def test_a_schema_with_our_names_is_left_alone() -> None:
    schema = Schema((table("_t1_1", "a"), table("singer", "a")))
    first, second = (
        parse_query(sql, "sqlite") for sql in ("SELECT a FROM singer AS x", "SELECT a FROM singer AS _t1_1")
    )

    assert canonical(first, schema) != canonical(second, schema)


def test_a_long_query_takes_little_time() -> None:
    condition = " OR ".join(f"(age > {number} AND name = '{number}')" for number in range(180))
    with modest_effort():
        form(f"SELECT name FROM singer WHERE {condition}")
