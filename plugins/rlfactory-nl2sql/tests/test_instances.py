"""Varied databases: what they keep of the given one, and what they hold for the gold query."""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from red_team.judging import write_shop
from rlfactory_nl2sql.checks.constants import Constant, constants, uses
from rlfactory_nl2sql.checks.parsing import parse_query
from rlfactory_nl2sql.checks.thresholds import thresholds
from rlfactory_nl2sql.connection import QueryLimits, Row, TableRows
from rlfactory_nl2sql.databases.reference import parse_reference
from rlfactory_nl2sql.databases.sqlite import open_database
from rlfactory_nl2sql.instances.links import shaped_columns
from rlfactory_nl2sql.instances.rows import CHARACTERS
from rlfactory_nl2sql.instances.vary import vary
from rlfactory_nl2sql.schema import Column, ForeignKey, Schema, Table

NUMBERS = range(1, 2 * len(CHARACTERS) + 1)
ODD = """
CREATE TABLE empty (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE boss (id INTEGER PRIMARY KEY, name TEXT NOT NULL, team TEXT REFERENCES team (code));
CREATE TABLE team (code TEXT PRIMARY KEY, head INTEGER NOT NULL REFERENCES boss (id), UNIQUE (head));
CREATE TABLE "order" (
    year INTEGER NOT NULL, "no" INTEGER NOT NULL, after_no INTEGER, note, ref INTEGER REFERENCES empty (id),
    PRIMARY KEY (year, "no"), FOREIGN KEY (year, after_no) REFERENCES "order" (year, "no"));
CREATE TABLE one (id INTEGER PRIMARY KEY REFERENCES boss (id), label TEXT NOT NULL UNIQUE);
INSERT INTO boss VALUES (1, 'Ann', NULL), (2, 'Bob', 'a'), (3, 'Cat', 'b'), (4, 'Dan', 'b');
INSERT INTO team VALUES ('a', 1), ('b', 2);
INSERT INTO "order" VALUES (2020, 1, NULL, 'x', NULL), (2020, 2, 1, 7, NULL),
    (2021, 1, NULL, 2.5, NULL), (2021, 5, 1, x'00', NULL);
INSERT INTO one VALUES (1, 'first'), (3, 'third');
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write_shop(tmp_path / "shop.sqlite")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    path = tmp_path / "odd.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ODD)
    return path


def given(path: Path, rows: int = 200) -> tuple[Schema, TableRows]:
    connection = open_database(parse_reference(path), QueryLimits())
    with closing(connection):
        schema = connection.schema()
        return schema, {table.name: connection.read(table.name, rows) for table in schema.tables}


def varied(path: Path, gold: str, number: int, seed: int = 0) -> sqlite3.Connection:
    """A database with the given one's definitions, foreign keys enforced, and the varied rows."""
    schema, data = given(path)
    query = parse_query(gold, "sqlite")
    asked = constants(query, schema, shaped_columns(schema, data))
    rows = vary(schema, data, asked, seed, number, thresholds=thresholds(query, schema))
    return filled(path, rows)


def filled(path: Path, rows: TableRows) -> sqlite3.Connection:
    with closing(sqlite3.connect(path)) as source:
        definitions = [sql for (sql,) in source.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for sql in definitions:
        connection.execute(sql)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("BEGIN")
    connection.execute("PRAGMA defer_foreign_keys = ON")
    for table, held in rows.items():
        for row in held:
            connection.execute(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(row))})', row)
    connection.execute("COMMIT")  # raises where a foreign key is broken
    return connection


def column(rows: TableRows, table: str, place: int) -> list[object]:
    return [row[place] for row in rows[table]]


def one_table(type_: str, values: Sequence[object], *asked: Constant, seed: int = 0, number: int = 2) -> list[object]:
    """The values that a column of that type holds in a varied table, after these."""
    table = Table("t", (Column("id", "INTEGER", nullable=False), Column("x", type_)), primary_key=("id",))
    data: dict[str, list[Row]] = {"t": list(enumerate(values))}
    return column(vary(Schema((table,)), data, asked, seed, number), "t", 1)


@pytest.mark.parametrize("number", NUMBERS)
def test_declared_constraints_hold(shop: Path, odd: Path, number: int) -> None:
    for path in (shop, odd):
        schema, data = given(path)
        for seed in range(4):
            rows = vary(schema, data, (), seed, number)
            with closing(filled(path, rows)):  # a key, a NOT NULL or a reference that is broken raises
                assert number % len(CHARACTERS) == 3 or all(rows[name] for name in data if data[name])


@pytest.mark.parametrize(
    ("definition", "places"),
    [
        ("(id INTEGER PRIMARY KEY, k TEXT CHECK (k IN ('x', 'y)')), n INT CHECK (n BETWEEN 1 AND 5)) STRICT", "kn"),
        ("(id INT, k TEXT, n INT CHECK (n < 6 -- (\n), PRIMARY KEY (id DESC, k)) WITHOUT ROWID", "n"),
        (
            "(id UNSIGNED BIG INT UNIQUE ON CONFLICT IGNORE, k TEXT COLLATE nocase CHECK (k IN ('X', 'Y)')), n)",
            "k",
        ),
        ('(id INT, k TEXT, n INT, g INT AS (n * 2) CHECK ([g] < 12), CONSTRAINT "check (" CHECK (t.n > 0))', "n"),
    ],
)
def test_checks_hold_however_a_table_is_declared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, definition: str, places: str
) -> None:
    path = tmp_path / "declared.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE t {definition}")
        rows = [(at, ("x", "y)")[at % 2], at % 5 + 1) for at in range(20)]
        connection.executemany("INSERT INTO t (id, k, n) VALUES (?, ?, ?)", rows)
    schema, data = given(path)
    asked = [Constant("t", "n", ">", 5), Constant("t", "n", "<", 1), Constant("t", "k", "=", "z")]
    for number in NUMBERS:
        made = vary(schema, data, asked, 0, number)["t"]
        assert made
        assert "k" not in places or {str(row[1]).lower() for row in made} <= {"x", "y)"}
        assert "n" not in places or {row[2] for row in made} <= {0, 1, 2, 3, 4, 5}
    assert not caplog.records


def test_rows_whose_references_are_missing_are_mended_or_dropped(shop: Path) -> None:
    schema, data = given(shop, rows=7)  # most sales refer to stock that is not among these
    with closing(filled(shop, vary(schema, data, (), 0, 1))) as connection:
        assert connection.execute("SELECT COUNT(*) FROM sale").fetchone()[0] > 7


def test_a_table_without_rows_stays_empty_and_is_referred_to_by_nothing(shop: Path, odd: Path) -> None:
    schema, data = given(odd)
    rows = vary(schema, data, (), 0, 2)
    assert rows["empty"] == []
    assert set(column(rows, "order", 4)) == {None}
    schema, data = given(shop)
    rows = vary(schema, {**data, "product": []}, (), 0, 2)
    assert (rows["stock"], rows["sale"]) == ([], [])  # they cannot do without a product
    assert rows["person"]


@pytest.mark.parametrize("number", NUMBERS)
def test_null_only_where_the_column_held_null(shop: Path, number: int) -> None:
    schema, data = given(shop)
    rows = vary(schema, data, (), 0, number)
    for table in schema.tables:
        for place in range(len(table.columns)):
            if None in column(rows, table.name, place):
                assert None in column(data, table.name, place), (table.name, place)


def test_nulls_appear_where_the_column_held_some(shop: Path) -> None:
    schema, data = given(shop)
    rows = vary(schema, data, (), 0, 1)
    assert None in column(rows, "sale", 3)  # a reference
    assert None in column(rows, "product", 2)


def test_kinds_and_formats_of_values_stay(shop: Path) -> None:
    schema, data = given(shop)
    for number in NUMBERS:
        with closing(filled(shop, vary(schema, data, (), 0, number))) as connection:
            strange = connection.execute(
                "SELECT sku FROM product WHERE sku NOT GLOB 'P-[0-9][0-9][0-9]' UNION ALL "
                "SELECT opened FROM shop WHERE date(opened) IS NOT opened UNION ALL "
                "SELECT sold_at FROM sale WHERE datetime(sold_at) IS NOT sold_at UNION ALL "
                "SELECT email FROM person WHERE email NOT LIKE '%@%._%' UNION ALL "
                "SELECT active FROM person WHERE active NOT IN (0, 1) UNION ALL "
                "SELECT quantity FROM sale WHERE typeof(quantity) <> 'integer' OR quantity NOT BETWEEN 1 AND 7"
            ).fetchall()
            assert strange == []


@pytest.mark.parametrize(
    ("type_", "values", "kind"),
    [
        ("INTEGER", [3, 8, 12, 40], int),
        ("DECIMAL(8, 2)", [Decimal("1.50"), Decimal("9.99"), Decimal("20.00")], Decimal),
        ("DOUBLE", [0.5, 2.25, 8.0], float),
        ("DATE", [dt.date(2020, 2, 29), dt.date(2021, 5, 31)], dt.date),
        ("TIMESTAMP", [dt.datetime(2020, 2, 29, 12, 30), dt.datetime(2022, 1, 31)], dt.datetime),  # noqa: DTZ001
        ("TEXT", ["red lamp", "old chair", "blue sky"], str),
    ],
)
def test_values_of_a_driver_keep_their_type_and_numbers_their_range(
    type_: str, values: list[object], kind: type
) -> None:
    made = one_table(type_, values)
    assert {type(value) for value in made} == {kind}
    assert set(made) - set(values), "no new values"
    if kind in {int, float, Decimal}:
        assert min(values) <= min(made) <= max(made) <= max(values)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("ENUM('a', 'b')", ["a", "b"]),
        ("mood", ["sad", "glad"]),
        ("BOOLEAN", [True, False]),
        ("INTEGER", [0, 1]),
        ("BLOB", [b"\x00", b"\xff"]),
        ("INTEGER[]", [[1, 2], [3]]),
    ],
)
def test_no_new_values_where_the_type_may_not_have_them(type_: str, values: list[object]) -> None:
    assert all(value in values for value in one_table(type_, values))


def test_texts_fit_their_column() -> None:
    made = one_table("VARCHAR(6)", ["abc", "abcdef", "x y"], Constant("t", "x", "=", "abcdef"))
    assert max(len(str(value)) for value in made) == 6


def test_the_same_rows_in_every_process() -> None:
    code = (
        "from rlfactory_nl2sql.instances.vary import vary\n"
        "from rlfactory_nl2sql.schema import *\n"
        "t = Table('t', (Column('a', 'TEXT'), Column('b', 'REAL')), primary_key=('a',))\n"
        "print(vary(Schema((t,)), {'t': [(c, i / 3) for i, c in enumerate('abcdefgh')]}, (), 5, 1))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_another_seed_or_number_gives_other_rows(shop: Path) -> None:
    schema, data = given(shop)
    made = [vary(schema, data, (), seed, number) for seed in (0, 1) for number in NUMBERS]
    assert all(one != other for at, one in enumerate(made) for other in made[:at])


def test_values_at_beside_and_slightly_beside_a_constant() -> None:
    numbers = one_table("INTEGER", [10, 50, 90], Constant("t", "x", ">", 60))
    assert {59, 60, 61} <= set(numbers)
    reals = [*range(7)], Constant("t", "x", "<=", 3)
    made = {
        value for seed in range(5) for value in one_table("REAL", [one + 0.25 for one in reals[0]], reals[1], seed=seed)
    }
    assert {2.5, 3.0, 3.01, 3.5} <= made
    dates = one_table("DATE", ["2021-03-05", "2023-11-30"], Constant("t", "x", ">=", "2022-06-01"))
    assert {"2022-05-31", "2022-06-01", "2022-06-02"} <= set(dates)
    years = one_table("DATE", ["2021-03-05", "2023-11-30"], Constant("t", "x", "function", "2022"))
    assert {"2021", "2022", "2023"} <= {str(value)[:4] for value in years}


def test_texts_equal_to_and_unlike_a_constant() -> None:
    made = set(one_table("TEXT", ["Jazz", "Pop music", "Blues"], Constant("t", "x", "=", "Rock"), number=2))
    assert "Rock" in made
    assert {str(value).lower() for value in made} > {"rock"}
    assert {"rock", "ROCK", "rOCK"} & made
    assert any(str(value).startswith("Rock ") for value in made)
    like = {str(value) for value in one_table("TEXT", ["Jazz", "Pop music"], Constant("t", "x", "like", "%ove%"))}
    assert any("ove" in value for value in like)
    assert any("ov" in value and "ove" not in value.lower() for value in like)


def test_some_rows_meet_all_conditions_at_once_and_some_miss_one(shop: Path) -> None:
    where = ["p.active = 1", "p.salary > 2600", "r.name = 'North'", "a.sold_at >= '2023-12-01'"]
    tables = (
        "FROM sale a JOIN person p ON a.seller_id = p.person_id JOIN shop s ON a.shop_id = s.shop_id "
        "JOIN region r ON r.code = s.region_code"
    )
    gold = f"SELECT a.sale_id {tables} WHERE {' AND '.join(where)}"
    missed = 0
    for seed in range(10):
        with closing(varied(shop, gold, 2, seed)) as connection:
            assert connection.execute(gold).fetchall()
            for left in where:
                others = " AND ".join(one for one in where if one != left)
                missed += bool(connection.execute(f"SELECT 1 {tables} WHERE {others} AND NOT {left}").fetchall())
    assert missed >= 32  # of 40


def test_a_condition_on_a_reference_is_met(shop: Path) -> None:
    gold = "SELECT sale_id FROM sale WHERE shop_id = 4 AND quantity > 2"
    for number in (1, 2):
        with closing(varied(shop, gold, number)) as connection:
            assert connection.execute(gold).fetchall()


@pytest.mark.parametrize("null", ["IS NULL", "IS NOT NULL"])
def test_a_condition_on_null_is_met_and_missed_and_in_one_instance_met_by_none(shop: Path, null: str) -> None:
    gold = f"SELECT DISTINCT quantity FROM sale WHERE quantity = 3 AND discount {null}"
    met = []
    for number in (1, 2, 3, 4):
        with closing(varied(shop, gold, number)) as connection:
            met.append(bool(connection.execute(gold).fetchall()))
            if number == 2:
                others = f"SELECT 1 FROM sale WHERE quantity = 3 AND NOT discount {null}"
                assert connection.execute(others).fetchall()
    assert met[:2] == [True, True]
    assert False in met


def test_several_groups_are_the_largest(shop: Path) -> None:
    sizes = "SELECT COUNT(*) FROM product GROUP BY category ORDER BY 1 DESC"
    with closing(varied(shop, "SELECT 1", 7)) as connection:
        first, second, *_ = (size for (size,) in connection.execute(sizes))
    assert first == second


@pytest.mark.parametrize(("aggregate", "wanted"), [("SUM", 900), ("AVG", 300)])
def test_a_group_has_exactly_the_sum_or_the_average_that_is_asked_about(
    shop: Path, aggregate: str, wanted: int
) -> None:
    grouped = f"SELECT seller_id FROM sale GROUP BY seller_id HAVING {aggregate}(quantity)"
    exact = []
    for number in (1, 2, 5, 7):
        with closing(varied(shop, f"{grouped} > {wanted}", number)) as connection:
            exact += connection.execute(f"{grouped} = {wanted}").fetchall()
    assert len(exact) >= 2


@pytest.mark.parametrize("value", ["many", "1e999", 10**40, float("inf"), float("nan"), True])
def test_a_sum_may_be_compared_with_anything(value: Any) -> None:
    for type_, values in (("INTEGER", [1, 2, 3]), ("REAL", [0.5, 1.5, float("inf")])):
        assert one_table(type_, values, Constant("t", "x", "function", value), Constant("t", "x", "=", value))


def test_compared_columns_are_equal_in_some_rows_also_across_a_reference(shop: Path) -> None:
    equal = "FROM sale a JOIN stock s ON a.shop_id = s.shop_id AND a.sku = s.sku WHERE a.quantity {} s.amount"
    gold = parse_query(f"SELECT sale_id {equal.format('>')}", "sqlite")
    schema, data = given(shop)
    with closing(filled(shop, vary(schema, data, constants(gold, schema), 0, 2, uses(gold, schema)))) as connection:
        assert connection.execute(f"SELECT COUNT(*) {equal.format('=')}").fetchone()[0] > 1


def test_times_and_digits_stay_times_and_digits() -> None:
    times = one_table("TEXT", ["06:00:00", "12:00:00", "14:30:00"], Constant("t", "x", ">", "11:00:00"))
    assert all(dt.time.fromisoformat(str(time)) for time in times)
    assert {"10:59:59", "11:00:00", "11:00:01"} <= set(times)
    codes = one_table(
        "TEXT", ["9001", "120", "77"], Constant("t", "x", "=", "9002"), Constant("t", "x", "function", "9")
    )
    assert all(str(code).isdigit() for code in codes)


def test_more_rows_than_the_limit_shows(shop: Path) -> None:
    gold = "SELECT title FROM product ORDER BY price LIMIT 25"
    for number in (1, 2):
        with closing(varied(shop, gold, number)) as connection:
            assert connection.execute("SELECT COUNT(*) FROM product").fetchone()[0] > 30


def test_some_rows_are_referred_to_by_none_and_references_run_in_no_circle(shop: Path) -> None:
    barren = "SELECT COUNT(*) FROM product WHERE sku NOT IN (SELECT sku FROM stock)"
    above = (
        "WITH RECURSIVE up (id, above) AS (SELECT person_id, boss_id FROM person UNION "
        "SELECT up.id, p.boss_id FROM up JOIN person p ON p.person_id = up.above) "
        "SELECT COUNT(*) FROM up WHERE id = above"
    )
    for number in (1, 2, 3):
        with closing(varied(shop, "SELECT 1", number)) as connection:
            assert connection.execute(barren).fetchone()[0] > 0
            assert connection.execute(above).fetchone()[0] == 0


def test_columns_that_only_their_name_says_to_refer_can_be_joined() -> None:
    singer = Table("singer", (Column("Singer_ID", "int"), Column("Name", "text")), primary_key=("Singer_ID",))
    concert = Table("concert", (Column("concert_id", "int"), Column("singer_id", "int")), primary_key=("concert_id",))
    data = {"singer": [(number, f"n{number}") for number in range(9)], "concert": [(1, 2), (2, 2), (3, 5)]}
    rows = vary(Schema((concert, singer)), data, (), 0, 1)
    known = set(column(rows, "singer", 0))
    joined = [value in known for value in column(rows, "concert", 1)]
    assert sum(joined) > len(joined) / 2


def test_views_and_references_to_nowhere_are_passed_over() -> None:
    view = Table("v", (Column("x", "int"),), view=True)
    key = ForeignKey(("x",), "gone", ("y",))
    table = Table("t", (Column("x", "int"),), foreign_keys=(key,))
    rows = vary(Schema((view, table)), {"t": [(1,), (2,)], "v": [(1,)]}, (), 0, 1)
    assert rows["t"]
    assert "v" not in rows
