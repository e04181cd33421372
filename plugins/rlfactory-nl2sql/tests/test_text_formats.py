"""Varied databases of texts with a format: right ways to read them agree there, and wrong ones do not."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Sequence
from contextlib import closing

import pytest
from rlfactory_nl2sql.checks.constants import uses
from rlfactory_nl2sql.checks.parsing import parse_query
from rlfactory_nl2sql.instances.rows import CHARACTERS
from rlfactory_nl2sql.instances.vary import vary
from rlfactory_nl2sql.schema import Column, Schema, Table

NUMBERS = range(1, 2 * len(CHARACTERS) + 1)
DATES = [f"{month}/{day}/{year}" for year in range(2010, 2020) for month, day in ((1, 31), (12, 5), (2, 28), (10, 10))]
FORMATS: Sequence[tuple[Sequence[str | int], str, Sequence[str], Sequence[str]]] = [
    (
        DATES,
        "substr(x, -4) = '2018'",
        ["x LIKE '%/2018'", "x GLOB '*/2018'", "CAST(substr(x, -4) AS INT) = 2018"],
        ["substr(x, -4) > '2018'", "x LIKE '%18%' AND x LIKE '1%'", "x LIKE '2018%'", "x LIKE '2/%/2018'"],
    ),
    (
        [dt.date(2010 + n % 9, n % 12 + 1, n % 28 + 1).strftime("%d.%m.%Y") for n in range(60)],
        "substr(x, 7) || '-' || substr(x, 4, 2) || '-' || substr(x, 1, 2) >= '2015-06-01'",
        ["date(substr(x, 7) || '-' || substr(x, 4, 2) || '-' || substr(x, 1, 2)) > '2015-05-31'"],
        [
            "substr(x, 7) || '-' || substr(x, 4, 2) || '-' || substr(x, 1, 2) > '2015-06-01'",
            "substr(x, 7) || '-' || substr(x, 1, 2) || '-' || substr(x, 4, 2) >= '2015-06-01'",
            "x >= '01.06.2015'",
        ],
    ),
    (
        [f"{2010 + n % 9}{n % 12 + 1:02}" for n in range(90)],
        "substr(x, 1, 4) = '2012'",
        ["x BETWEEN '201201' AND '201212'", "x < '201300' AND x > '2012'", "CAST(x AS INT) / 100 = 2012"],
        ["x LIKE '%12'", "x BETWEEN '201201' AND '201211'"],
    ),
    (
        [f"${n * n % 9000 + 5:,}.{n % 4 * 25:02}" for n in range(150)],
        "CAST(replace(replace(x, '$', ''), ',', '') AS REAL) > 1234.5",
        ["CAST(replace(substr(x, 2), ',', '') AS REAL) > 1234.50"],
        [
            "CAST(replace(x, '$', '') AS REAL) > 1234.5",
            "CAST(replace(replace(x, '$', ''), ',', '') AS REAL) >= 1234.5",
            "x > '$1,234.50'",
        ],
    ),
    (
        [f"CUS-{n * 7:05}" for n in range(40)],
        "CAST(substr(x, 5) AS INT) <= 42",
        ["x <= 'CUS-00042'", "substr(x, 5) < '00043'", "replace(x, 'CUS-', '') + 0 <= 42"],
        ["substr(x, 5) <= '42'", "x < 'CUS-00042'", "CAST(x AS INT) <= 42"],
    ),
    (
        [f"{n * n * 37 % 98000 + 1200:05}" for n in range(60)],
        "substr(x, 1, 2) = '02'",
        ["x BETWEEN '02000' AND '02999'", "CAST(x AS INT) / 1000 = 2", "x LIKE '02%'"],
        ["x LIKE '%02%'", "CAST(x AS INT) BETWEEN 2000 AND 2998", "substr(x, 1, 1) = '2'"],
    ),
    (
        [f"{n * 3:04}{'ABCDEFGHJK'[n * 3 % 10]}" for n in range(90)],
        "substr(x, 5) = 'C' AND x < '0100'",
        ["CAST(substr(x, 1, 4) AS INT) % 10 = 2 AND CAST(x AS INT) < 100"],
        ["x LIKE '%C%' AND x <= '01'  OR x = '0102C'", "substr(x, 3, 1) = '2' AND x < '0100'"],
    ),
    (
        [int(f"{2010 + n % 9}{n % 12 + 1:02}{n % 28 + 1:02}") for n in range(60)],
        "x / 10000 = 2013",
        [
            "x BETWEEN 20130101 AND 20131231",
            "x LIKE '2013%'",
            "substr(x, 1, 4) = '2013'",
            "x > 20130100 AND x < 20131232",
        ],
        ["x BETWEEN 20130101 AND 20131230", "x LIKE '%13'", "x / 100 % 100 = 13"],
    ),
    (
        ["red", "green;red", "red;blue", "darkred;blue", "blue", "green", "green;darkred", "darkred", "blue;green"] * 2,
        "';' || x || ';' LIKE '%;red;%'",
        ["x = 'red' OR x LIKE 'red;%' OR x LIKE '%;red' OR x LIKE '%;red;%'"],
        ["x LIKE '%red%'", "x LIKE 'red%'"],
    ),
]


@pytest.mark.parametrize(("values", "gold", "right", "wrong"), FORMATS)
def test_conditions_on_pieces_of_texts_with_a_format(
    values: Sequence[str | int], gold: str, right: Sequence[str], wrong: Sequence[str]
) -> None:
    """The values have the format, so that other ways to read it give the same, and other readings do not."""
    table = Table("t", (Column("id", "INTEGER", nullable=False), Column("x", "")), primary_key=("id",))
    schema, data = Schema((table,)), {"t": list(enumerate(values))}

    def differ(condition: str) -> bool:
        queries = [parse_query(f"SELECT id FROM t WHERE {one}", "sqlite") for one in (gold, condition)]
        both = uses(queries[0], schema, {("t", "x")}) | uses(queries[1], schema, {("t", "x")})
        for number in NUMBERS:
            with closing(sqlite3.connect(":memory:")) as connection:
                connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x)")
                rows = vary(schema, data, both.constants, 4, number, both)["t"]
                connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
                found = [sorted(connection.execute(query.sql)) for query in queries]
            if found[0] != found[1]:
                return True
        return False

    assert not [condition for condition in right if differ(condition)]
    assert not [condition for condition in wrong if not differ(condition)]
