"""The gold query's literals, with the columns they are compared with."""

from __future__ import annotations

import pytest
from rlfactory_nl2sql.checks.constants import Constant, constants, uses
from rlfactory_nl2sql.checks.parsing import parse_query
from rlfactory_nl2sql.schema import Column, Schema, Table


def table(name: str, *columns: str) -> Table:
    return Table(name, tuple(Column(column, "TEXT") for column in columns))


SCHEMA = Schema((table("Singer", "Id", "Name", "Age", "Born"), table("Concert", "Year", "SingerId")))


def found(sql: str, dialect: str = "sqlite") -> set[Constant]:
    return set(constants(parse_query(sql, dialect), SCHEMA))


def where(condition: str) -> set[Constant]:
    return found(f"SELECT s.Name FROM singer AS s WHERE {condition}")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("age > 20", {("Age", ">", 20)}),
        ("20 > s.age", {("Age", "<", 20)}),
        ("age = -2.5", {("Age", "=", -2.5)}),
        ("age BETWEEN 3 AND 7", {("Age", ">=", 3), ("Age", "<=", 7)}),
        ("name IN ('a', 'b')", {("Name", "=", "a"), ("Name", "=", "b")}),
        ("name LIKE 'A%' AND NOT name LIKE '%z'", {("Name", "like", "A%"), ("Name", "like", "%z")}),
        ("name <> \"Joe\"", {("Name", "<>", "Joe")}),
        ("LOWER(name) = 'joe'", {("Name", "function", "joe")}),
        ("strftime('%Y', born) >= '2010'", {("Born", "function", "2010")}),
        ("age + 1 > 5", {("Age", "function", 5)}),
        ("born > date('2010-01-01')", {("Born", "function", "2010-01-01")}),
        ("CAST(age AS INTEGER) <= 5", {("Age", "<=", 5)}),
        ("CASE age WHEN 3 THEN 'x' END = 'x'", {("Age", "=", 3), ("Age", "function", "x")}),
        ("age = id AND name IS NULL", {("Name", "null", "")}),
        ("NOT name IS NULL OR id IS NOT NULL", {("Name", "not null", ""), ("Id", "not null", "")}),
        ("NOT (name IS NULL) OR NOT (NOT (id IS NULL))", {("Name", "not null", ""), ("Id", "null", "")}),
        ("name IS 'a' OR id IS NOT 3", {("Name", "=", "a"), ("Id", "<>", 3)}),
        ("age > 1" + "0" * 6000, set()),
    ],
)  # fmt: skip
def test_a_comparison(condition: str, expected: set[tuple[str, str, str | float]]) -> None:
    assert where(condition) == {Constant("Singer", *parts) for parts in expected}


def test_counts_and_limits() -> None:
    sql = (
        "SELECT Age, COUNT(*) AS n FROM Singer GROUP BY Age "
        "HAVING n > 2 AND COUNT(DISTINCT Name) >= 3 AND 4.5 > AVG(Id) AND TOTAL(DISTINCT Born) > 9 "
        "ORDER BY n LIMIT 5 OFFSET 1"
    )
    assert found(sql) == {
        Constant(None, None, "count>", 2),
        Constant(None, None, "count>=", 3),
        Constant("Singer", "Id", "function", 4.5),
        Constant("Singer", "Born", "function", 9),
        Constant(None, None, "limit", 5),
        Constant(None, None, "offset", 1),
    }


def test_total_is_an_aggregate_of_sqlite_alone() -> None:
    sql = "SELECT total(age) FROM singer"
    assert uses(parse_query(sql, "sqlite"), SCHEMA).aggregated == {("singer", "age")}
    assert uses(parse_query(sql, "postgres"), SCHEMA).aggregated == frozenset()
    assert constants(parse_query("SELECT 1 FROM singer HAVING total() > 1", "sqlite"), SCHEMA)


def test_columns_that_decide_what_a_limit_keeps_and_columns_that_are_compared() -> None:
    sql = "SELECT s.name FROM singer s JOIN concert c ON c.year > s.born ORDER BY s.age, COUNT(s.id) LIMIT 1"
    found = uses(parse_query(sql, "sqlite"), SCHEMA)
    assert found.sorted_by == {("singer", "age")}
    assert found.compared == {(("concert", "year"), ("singer", "born")), (("singer", "born"), ("concert", "year"))}
    assert uses(parse_query(sql.removesuffix(" LIMIT 1"), "sqlite"), SCHEMA).sorted_by == frozenset()


@pytest.mark.slow
def test_names_are_followed_to_their_tables() -> None:
    sql = (
        "WITH c AS (SELECT SingerId AS who, COUNT(*) AS times FROM Concert GROUP BY SingerId) "
        "SELECT x.called FROM (SELECT Name AS called, Id FROM Singer) AS x JOIN c ON c.who = x.Id "
        "WHERE x.called = 'Joe' AND c.who <> 7 AND times > 3 AND EXISTS (SELECT 1 FROM Concert WHERE Year = 2014)"
    )
    assert found(sql) == {
        Constant("Singer", "Name", "=", "Joe"),
        Constant("Concert", "SingerId", "<>", 7),
        Constant(None, None, "count>", 3),
        Constant("Concert", "Year", "=", 2014),
    }


def test_an_unknown_column_has_no_place() -> None:
    assert found("SELECT 1 FROM singer WHERE height > 3") == {Constant(None, None, ">", 3)}


def test_names_that_go_in_rings_end() -> None:
    assert len(found("SELECT a AS b, b AS a FROM Singer HAVING a > 1")) == 1


@pytest.mark.parametrize("dialect", ["postgres", "mysql"])
def test_other_dialects(dialect: str) -> None:
    assert found("SELECT Name FROM Singer WHERE Age >= 18 LIMIT 3", dialect) == {
        Constant("Singer", "Age", ">=", 18),
        Constant(None, None, "limit", 3),
    }


def test_an_output_column_of_an_outer_query_is_followed() -> None:
    sql = "SELECT Age AS old FROM Singer WHERE EXISTS (SELECT 1 FROM Concert WHERE old > 30)"
    assert found(sql) == {Constant("Singer", "Age", ">", 30)}
