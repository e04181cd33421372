"""Structural similarity: bounds, symmetry, and less for each clause that differs."""

from __future__ import annotations

import pytest
from effort import modest_effort
from rlfactory_nl2sql.checks.parsing import Query, parse_query
from rlfactory_nl2sql.checks.similarity import similarity

GOLD = (
    "SELECT s.name, COUNT(*) FROM singer AS s JOIN concert AS c ON s.id = c.singer_id WHERE c.year > 2014 "
    "GROUP BY s.name HAVING COUNT(*) > 2 ORDER BY COUNT(*) DESC LIMIT 3"
)


def read(sql: str) -> Query:
    return parse_query(sql, "sqlite")


def to_gold(sql: str) -> float:
    value = similarity(read(GOLD), read(sql))
    assert value == similarity(read(sql), read(GOLD))
    return value


def test_aliases_and_letter_case_do_not_count() -> None:
    same = (
        "select x.name, count(*) as n from singer x join concert as y on x.id = y.singer_id where y.year > 2014 "
        "group by x.name having count(*) > 2 order by count(*) desc limit 3"
    )
    assert to_gold(GOLD) == to_gold(same) == 1


def test_each_differing_clause_costs() -> None:
    changes = [("LIMIT 3", "LIMIT 4"), ("DESC", "ASC"), ("> 2 ", "> 5 "), ("2014", "2015"), ("JOIN", "LEFT JOIN")]
    sql, values = GOLD, [1.0]
    for old, new in changes:
        sql = sql.replace(old, new, 1)
        values.append(to_gold(sql))

    assert values == sorted(set(values), reverse=True)
    assert values[-1] > 0.3


@pytest.mark.parametrize(
    ("nearer", "farther"),
    [
        ("SELECT name FROM singer", "SELECT 1"),
        ("SELECT name FROM singer JOIN concert ON id = singer_id", "SELECT name FROM singer"),
        (GOLD.replace("s.name, COUNT(*)", "COUNT(*), s.name", 1), "SELECT name, COUNT(*) FROM singer GROUP BY name"),
    ],
)
def test_more_of_the_structure_is_nearer(nearer: str, farther: str) -> None:
    assert 1 > to_gold(nearer) > to_gold(farther) >= 0


def test_a_self_join_on_itself_is_not_the_same() -> None:
    sql = "SELECT a.name FROM singer a JOIN singer b ON a.id = b.id"

    assert similarity(read(sql), read(sql.replace("b.id", "a.id"))) < 1


def test_long_queries_are_compared_in_little_time() -> None:
    long = "SELECT " + ", ".join(f"name || '{number}'" for number in range(400)) + " FROM singer"
    with modest_effort():
        to_gold(long)
