"""Reading queries: what is let in, what is said of the rest, and how long hostile text takes."""

from __future__ import annotations

import pickle
import re

import pytest
from effort import modest_effort
from hypothesis import given, settings
from hypothesis import strategies as st
from rlfactory_nl2sql.checks.constants import constants
from rlfactory_nl2sql.checks.ordering import cut, is_ordered, tie_breaks
from rlfactory_nl2sql.checks.parsing import NAMES, NotUnderstoodError, parse_query, same_form
from rlfactory_nl2sql.connection import Failure, QueryError
from rlfactory_nl2sql.schema import Column, Schema, Table

SCHEMA = Schema((Table("singer", (Column("id", "INTEGER"), Column("name", "TEXT"))),))


def refusal(sql: str, dialect: str = "sqlite") -> QueryError:
    with pytest.raises(QueryError) as caught:
        parse_query(sql, dialect)
    return caught.value


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "select name from singer;",
        "/* a comment; with a semicolon */ SELECT name -- and another; one\nFROM singer ; ;",
        "SELECT ';' AS semicolon",
        "WITH s AS (SELECT 1 AS one) SELECT one FROM s",
        "SELECT 1 UNION SELECT 2 ORDER BY 1",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "SELECT REPLACE(name, 'a', 'b') FROM singer",
    ],
)
def test_a_query_is_read(sql: str, dialect: str) -> None:
    query = parse_query(sql, dialect)

    assert (query.sql, query.dialect) == (sql, dialect)


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1 FROM Singer AS s, generate_series(1, 2)", {"singer"}),
        ("WITH c AS (SELECT * FROM singer) SELECT * FROM c UNION SELECT * FROM C", {"singer"}),
        ("WITH RECURSIVE n AS (SELECT 1 AS i UNION SELECT i + 1 FROM n) SELECT * FROM n", set()),
        ("SELECT * FROM c, (WITH c AS (SELECT 1) SELECT * FROM c) AS other", {"c"}),
        ("SELECT 1 WHERE EXISTS (WITH c AS (SELECT 1) SELECT * FROM c UNION SELECT * FROM singer)", {"singer"}),
    ],
)
def test_the_tables_that_a_query_reads(sql: str, expected: set[str], dialect: str) -> None:
    assert parse_query(sql, dialect).tables == expected


@pytest.mark.parametrize("dialect", NAMES)
def test_a_table_may_be_read_under_the_name_of_a_with_clause(dialect: str) -> None:
    """But not in SQLite, where a part of a WITH clause sees itself and those after it."""
    before = parse_query("WITH c AS (SELECT * FROM c) SELECT * FROM c", dialect)
    within = parse_query("WITH a AS (SELECT * FROM c), c AS (SELECT 1) SELECT * FROM a", dialect)
    assert before.tables == within.tables == (set() if dialect == "sqlite" else {"c"})


@pytest.mark.parametrize(
    ("sql", "dialect", "word"),
    [
        ("DELETE FROM singer", "sqlite", "DELETE"),
        ("insert into singer values (1)", "sqlite", "INSERT"),
        ("UPDATE singer SET name = 'x'", "postgres", "UPDATE"),
        ("DROP TABLE singer", "sqlite", "DROP"),
        ("CREATE TABLE t AS SELECT 1", "sqlite", "CREATE"),
        ("REPLACE INTO singer VALUES (1)", "mysql", "REPLACE"),
        ("PRAGMA table_info(singer)", "sqlite", "PRAGMA"),
        ("EXPLAIN SELECT 1", "sqlite", "EXPLAIN"),
        ("ATTACH 'x.db' AS x", "sqlite", "ATTACH"),
        ("COPY singer TO 'x.csv'", "postgres", "COPY"),
        ("INSTALL PLUGIN files SONAME 'files.so'", "mysql", "INSTALL"),
        ("CALL clean_up()", "mysql", "CALL"),
        ("SET max_execution_time = 0", "mysql", "SET"),
        ("SELECT * INTO copied FROM singer", "postgres", "INTO"),
        ("SELECT name FROM singer INTO OUTFILE 'x'", "mysql", "INTO"),
        ("WITH s AS (SELECT 1) INSERT INTO singer SELECT * FROM s", "sqlite", "INTO"),
        ("WITH s AS (SELECT 1) DELETE FROM singer", "sqlite", "DELETE"),
        ("WITH gone AS (DELETE FROM singer RETURNING *) SELECT * FROM gone", "postgres", "DELETE"),
        ("SELECT name FROM singer FOR UPDATE", "postgres", "locks"),
        ("SELECT name FROM singer LOCK IN SHARE MODE", "mysql", "locks"),
        ("SELECT 1; SELECT 2", "sqlite", "more than one"),
        ("SELECT 1; DROP TABLE singer", "sqlite", "more than one"),
        ("SELECT /*! SLEEP(9) */ 1", "mysql", "Comments"),
        ("SELECT /*+ MAX_EXECUTION_TIME(0) */ 1", "mysql", "Comments"),
    ],
)
def test_what_is_no_single_query_is_refused(sql: str, dialect: str, word: str) -> None:
    error = refusal(sql, dialect)

    assert error.failure is Failure.REFUSED
    assert word in str(error)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "There is no SQL in it."),
        (" -- nothing\n;", "There is no SQL in it."),
        ("SELECT a FRM singer x", "Not understood as SQLite SQL: unexpected text, at 'singer' (line 1, column 14)."),
        ("SELECT name\nFROM", "Not understood as SQLite SQL: expected table name, at 'FROM' (line 2, column 1)."),
        ("SELECT (1 + 2", "Not understood as SQLite SQL: expecting ), at '2' (line 1, column 13)."),
        ("Here is the query", "Not understood as SQLite SQL"),
        ("SELECT 'abc", "Not understood as SQLite SQL: a quote or comment without its end"),
        ("SELECT 1 FROM a " + "JOIN b " * 30, "there are too many ways to read it; write ON after each JOIN, at"),
    ],
)
def test_the_message_is_short_and_says_where(sql: str, message: str) -> None:
    error = refusal(sql)

    assert error.failure is Failure.ERROR
    assert message in str(error)
    assert len(str(error)) < 200
    assert "\x1b" not in str(error)
    assert "sqlglot" not in str(error)


def test_an_error_is_itself_again_in_another_process() -> None:
    error = refusal("SELECT FROM FROM")
    again = pickle.loads(pickle.dumps(error))

    assert isinstance(again, NotUnderstoodError)
    assert (again.failure, str(again)) == (error.failure, str(error))


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize(
    "sql",
    [
        "x" * 10_000_000,
        "SELECT " + "(" * 100_000,
        "SELECT " + "(" * 16_000,
        "SELECT " + "(" * 40 + "1" + ")" * 40,
        "SELECT " + "NOT " * 4_000 + "1",
        "SELECT " + "CASE WHEN a THEN " * 900 + "1" + " END" * 900,
        "SELECT " + "1 + " * 1_900 + "1",
        "SELECT * FROM a " + "JOIN b " * 1_900,
        "SELECT * FROM a " + "JOIN b " * 30,
        "SELECT * FROM a" + ", b JOIN c" * 30,
        "SELECT " + "DECIMAL(" * 30,
        "SELECT " + "INT[" * 30,
        "SELECT 1 " + "UNION SELECT 1 " * 1_300,
        "SELECT * FROM " + "(SELECT * FROM " * 900,
        "SELECT a" + "[1]" * 1_300,
        "SELECT a" + " -> b" * 1_900,
        "SELECT " + "INTERVAL " * 1_500,
        "SELECT a" + " IS NOT a" * 1_300,
    ],
    ids=lambda sql: f"{sql[:30]}… {len(sql)}",
)
def test_hostile_text_ends_at_once(sql: str, dialect: str) -> None:
    parse_query("SELECT 1", dialect)  # sqlglot imports a dialect when it is first used
    with modest_effort():
        error = refusal(sql, dialect)

        assert error.failure is Failure.ERROR


def test_brackets_that_people_write_are_not_too_many() -> None:
    parse_query("SELECT " + "(" * 20 + "1" + ")" * 20, "sqlite")
    parse_query("SELECT 1 WHERE " + " OR ".join(f"name = 'x{number}'" for number in range(150)), "sqlite")
    parse_query(f"SELECT 1 WHERE 1 IN ({', '.join(map(str, range(1500)))})", "sqlite")


WORDS = re.findall(
    r"\S+",
    """
    SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT OFFSET UNION ALL JOIN LEFT ON USING AS DISTINCT ( ) ( ) , . * + - = <
    AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN THEN END EXISTS WITH CAST COUNT SUM OVER PARTITION singer t name id 'a'
    1 2.5 "name" COLLATE NOCASE DESC INTERVAL -> :: [ ] { } ? @v $1 ESCAPE ANY VALUES LATERAL UNNEST PIVOT random
    """,
)
STARTS = [
    "SELECT name FROM singer",
    "SELECT name, COUNT(*) AS n FROM singer AS t GROUP BY name ORDER BY n DESC LIMIT 3",
    "WITH c AS (SELECT id AS i FROM singer) SELECT t.name FROM singer AS t JOIN c ON c.i = t.id WHERE t.id > 2",
    "SELECT name FROM singer UNION SELECT id FROM singer ORDER BY 1",
]


CHANGES = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(WORDS)), max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(NAMES)), st.sampled_from(STARTS), CHANGES)
def test_no_text_breaks_a_check(dialect: str, start: str, changes: list[tuple[int, str]]) -> None:
    words = start.split()
    for place, word in changes:
        words.insert(place % (len(words) + 1), word)
    try:
        query = parse_query(" ".join(words), dialect)
    except QueryError:
        return
    constants(query, SCHEMA)
    tie_breaks(query, SCHEMA, 2)
    cut(query)
    is_ordered(query)


@pytest.mark.parametrize(
    ("other", "dialect", "same"),
    [
        ("SELECT Name FROM singer -- all\nWHERE name = 'Ann'", "sqlite", True),
        ("select name from singer where name = 'ann'", "sqlite", False),
        ("SELECT NAME FROM SINGER WHERE NAME = 'Ann'", "mysql", False),
        ("SELECT s.name FROM singer AS s WHERE s.name = 'Ann'", "sqlite", False),
    ],
)
def test_only_layout_comments_and_letter_case_keep_the_form(other: str, dialect: str, same: bool) -> None:
    assert same_form("select name from singer where name = 'Ann';", other, dialect) is same
