"""The published metrics count what the official evaluation programs count.

Every expected value below is what the programs themselves said of these queries, run once on the databases that
`flights` writes: `eval_exec_match` of taoyds/test-suite-sql-eval (commit e97acc5) and `execute_model` of
bird/llm/src/evaluation.py of AlibabaResearch/DAMO-ConvAI (commit 483554e). The first queries are pairs of the former's
evaluation_examples/gold.txt and predict.txt, and rows of gold.txt against each other; the others try each of its rules.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from rlfactory_nl2sql.rewards.published import BirdExecution, PublishedMetric, SpiderTestSuite
from rlfactory_nl2sql.task import Nl2SqlTask
from test_rewards import answered, judge, reasons, value

from rlfactory_core.errors import ConfigError

SCHEMA = """
CREATE TABLE airlines (uid INTEGER PRIMARY KEY, Airline TEXT, Abbreviation TEXT, Country TEXT);
CREATE TABLE airports (
    City TEXT, AirportCode TEXT PRIMARY KEY, AirportName TEXT, Country TEXT, CountryAbbrev TEXT
);
CREATE TABLE flights (
    Airline INTEGER, FlightNo INTEGER, SourceAirport TEXT, DestAirport TEXT, Miles REAL,
    PRIMARY KEY (Airline, FlightNo)
);
"""
ROWS = {
    "flight_2.sqlite": """
INSERT INTO airlines VALUES (1, 'United Airlines', 'UAL', 'USA'), (2, 'JetBlue Airways', 'JetBlue', 'USA'),
    (3, 'Lufthansa', 'LH', NULL), (4, 'Delta Airlines', 'Delta', 'USA');
INSERT INTO airports VALUES ('Aberdeen', 'ABZ', 'Dyce', 'UK', 'UK'), ('Anthony', 'ANY', 'Anthony', 'USA', 'US'),
    ('Alton', 'ALN', 'Alton', 'USA', 'US'), ('Akron', 'AKO', 'Colorado Plains', 'USA', 'US');
INSERT INTO flights VALUES (1, 28, 'ABZ', 'ANY', 10.0), (1, 44, 'ANY', 'ALN', 1.0), (2, 19, 'ALN', 'ABZ', 10.5),
    (4, 7, 'ABZ', 'ALN', NULL), (4, 28, 'AKO', 'ANY', 3.0), (3, 10, 'ABZ', 'ABZ', 1.0);
""",
    "flight_2_other.sqlite": """
INSERT INTO airlines VALUES (1, 'United Airlines', 'UAL', 'USA'), (2, 'JetBlue Airways', 'JetBlue', 'Canada'),
    (7, 'JetBlue Airways', 'JB', 'USA');
INSERT INTO airports VALUES ('Anthony', 'ANY', 'Anthony', 'USA', 'US'), ('Aberdeen', 'APG', 'Phillips', 'USA', 'US');
INSERT INTO flights VALUES (1, 28, 'ANY', 'APG', 2.0), (2, 28, 'ANY', 'APG', 2.0), (7, 5, 'APG', 'ANY', 7.25);
""",
}
CASES = [  # gold query, prediction; is it right to BIRD's program, to Spider's, to Spider's with --keep_distinct?
    ("SELECT * FROM AIRLINES", "select * from airlines", True, True, True),
    ("SELECT * FROM AIRPORTS", "select * from airlines", False, False, False),
    ("SELECT Airline FROM AIRLINES", "select Airline from airlines", True, True, True),
    ("SELECT City ,  Country FROM AIRPORTS", "select Country,City from airports", False, True, True),
    ("SELECT AirportName FROM AIRPORTS", "select AirportName from airports", True, True, True),
    ("SELECT count(*) FROM AIRLINES", "select count(*) from airports where Country = 'terminal'", False, False, False),
    (
        'SELECT Country FROM AIRLINES WHERE Airline  =  "JetBlue Airways"',
        "select Country from airports where Country = 'terminal'",
        False,
        False,
        False,
    ),
    (
        'SELECT Airline ,  Abbreviation FROM AIRLINES WHERE Country  =  "USA"',
        (
            "select * from airlines as T1 join airports as T2 "
            "where T1.Airline = 'terminal' and T2.AirportName = 'terminal'"
        ),
        False,
        False,
        False,
    ),
    (
        'SELECT * FROM AIRLINES WHERE Airline  =  "JetBlue Airways"',
        "SELECT uid, Airline, Abbreviation, Country FROM AIRLINES WHERE Airline = 'JetBlue Airways'",
        True,
        True,
        True,
    ),
    ('SELECT count(*) FROM AIRLINES WHERE Country  =  "USA"', "SELECT 3", True, False, False),
    # rows and their order
    ("SELECT Airline FROM flights", "SELECT DISTINCT Airline FROM flights", True, True, False),
    ("SELECT Airline FROM flights", "SELECT Airline FROM flights GROUP BY Airline", True, False, False),
    (
        "SELECT FlightNo FROM flights ORDER BY FlightNo",
        "SELECT FlightNo FROM flights ORDER BY FlightNo DESC",
        True,
        False,
        False,
    ),
    ("SELECT FlightNo FROM flights", "SELECT FlightNo FROM flights ORDER BY FlightNo DESC", True, True, True),
    (
        "SELECT Airline FROM (SELECT * FROM flights ORDER BY Miles)",
        "SELECT Airline FROM flights ORDER BY Airline",
        True,
        False,
        False,
    ),
    (
        "SELECT Airline FROM airlines WHERE uid > 90",
        "SELECT uid, Country FROM airlines WHERE uid > 90",
        True,
        True,
        True,
    ),
    ("SELECT Airline FROM airlines WHERE uid > 90", "SELECT NULL", False, False, False),
    # columns and their order
    (
        "SELECT uid, Airline, Abbreviation, Country FROM airlines",
        "SELECT Country, Abbreviation, Airline, uid FROM airlines",
        False,
        True,
        True,
    ),
    (
        "SELECT SourceAirport, DestAirport FROM flights",
        "SELECT DestAirport, SourceAirport FROM flights",
        False,
        True,
        True,
    ),
    (
        "SELECT FlightNo, SourceAirport FROM flights ORDER BY FlightNo, SourceAirport",
        "SELECT SourceAirport, FlightNo FROM flights ORDER BY FlightNo, SourceAirport",
        False,
        True,
        True,
    ),
    ("SELECT uid, uid + 1 FROM airlines", "SELECT uid + 1, uid + 2 FROM airlines", False, False, False),
    ("SELECT uid, -uid FROM airlines", "SELECT -uid, -uid FROM airlines", False, False, False),
    (
        "SELECT 1, 2, 1, 2 UNION ALL SELECT 2, 1, 1, 2",
        "SELECT 1, 1, 2, 2 UNION ALL SELECT 1, 2, 2, 1",
        False,
        True,
        True,
    ),
    (
        "SELECT 1, 2, 1, 2 UNION ALL SELECT 2, 1, 1, 2",
        "SELECT 1, 1, 2, 2 UNION ALL SELECT 1, 2, 1, 2",
        False,
        True,
        True,
    ),
    # values
    ("SELECT 1", "SELECT 1.0", True, True, True),
    ("SELECT 1", "SELECT '1'", False, False, False),
    ("SELECT 10, 1", "SELECT 10, 1.0", True, False, False),
    (
        "SELECT Miles FROM flights WHERE Miles = 2 OR Miles = 3",
        "SELECT CAST(Miles AS INTEGER) FROM flights WHERE Miles IN (2, 3)",
        True,
        True,
        True,
    ),
    ("SELECT 0.3", "SELECT 0.1 + 0.2", False, False, False),
    (
        "SELECT Country FROM airlines WHERE Country IS NULL",
        "SELECT NULL FROM airlines WHERE Country IS NULL",
        True,
        True,
        True,
    ),
    ("SELECT CAST(x'41ff' AS TEXT)", "SELECT CAST(x'41fe' AS TEXT)", False, True, True),
    # the text of queries
    (
        "SELECT FlightNo FROM flights WHERE Miles >= 3",
        "SELECT FlightNo FROM flights WHERE Miles > = 3",
        False,
        True,
        True,
    ),
    (
        "SELECT FlightNo FROM flights WHERE Miles <= 3",
        "SELECT FlightNo FROM flights WHERE Miles < = 3 AND Miles ! = 99",
        False,
        True,
        True,
    ),
    ("SELECT count(DISTINCT Airline) FROM flights", "SELECT count(Airline) FROM flights", False, True, False),
    ("SELECT DISTINCT Airline FROM flights", "SELECT Airline FROM flights", True, True, False),
    (
        "SELECT DISTINCT Airline FROM flights",
        "SELECT distinct Airline FROM flights /* distinct */ -- distinct",
        True,
        True,
        True,
    ),
    ("SELECT 'distinct', \"Airline\" FROM airlines", "SELECT 'distinct', Airline FROM airlines", True, True, True),
    ("SELECT 'a distinct b'", "SELECT 'a  b'", False, False, False),
    ("SELECT 2020", "SELECT YEAR(CURDATE())", False, True, True),
    ("SELECT 1", "SELECT value", False, True, True),
    # failures
    ("SELECT Airline FROM airlines", "SELECT Airlin FROM airlines", False, False, False),
    ("SELECT Airline FROM airlines", "SELECT Airline FROM", False, False, False),
    ("SELECT Airline FROM airlines", "SELECT Airline FROM airlines; SELECT 1", False, True, False),
    ("SELECT Airline FROM airlines", "SELECT Airline FROM airlines;", True, True, True),
]


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    """Spider's flight_2 with few rows, in a suite of two databases; `Miles` is ours."""
    for name, rows in ROWS.items():
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.executescript(SCHEMA + rows)
    return tmp_path / "flight_2.sqlite"


def said(path: Path, metric: PublishedMetric, pairs: Sequence[tuple[str, str]]) -> list[bool | None]:
    items = judge(Nl2SqlTask({"db": path}), metric, *(answered(sql, gold) for gold, sql in pairs))
    return [None if (score := value(item)) is None else score == 1.0 for item in items]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "column"),
    [(BirdExecution(), 2), (SpiderTestSuite(), 3), (SpiderTestSuite(keep_distinct=True), 4)],
    ids=["bird", "spider", "spider with distinct"],
)
def test_a_metric_says_what_the_official_program_says(flights: Path, metric: PublishedMetric, column: int) -> None:
    found = said(flights, metric, [(gold, prediction) for gold, prediction, *_ in CASES])
    expected = [case[column] for case in CASES]
    assert [(case[:2], one) for case, one in zip(CASES, found, strict=True)] == [
        (case[:2], one) for case, one in zip(CASES, expected, strict=True)
    ]


@pytest.mark.slow
def test_a_right_query_that_fails_counts_as_bird_counts_it_and_is_unknown_to_spider(flights: Path) -> None:
    pair = [("SELECT Airlin FROM airlines", "SELECT Airline FROM airlines")]
    assert said(flights, BirdExecution(), pair) == [False]
    assert said(flights, SpiderTestSuite(), pair) == [None]


@pytest.mark.slow
def test_a_prediction_without_end_is_wrong(flights: Path) -> None:
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
    pair = [("SELECT count(*) FROM airlines", endless)]
    assert said(flights, BirdExecution(seconds=0.3), pair) == [False]
    assert said(flights, SpiderTestSuite(seconds=0.3), pair) == [False]


@pytest.mark.slow
def test_a_prediction_cannot_write(flights: Path) -> None:
    """The programs would run it, and judge by what is left."""
    pair = [("SELECT count(*) FROM airlines WHERE uid > 90", "DELETE FROM airlines")]
    assert said(flights, BirdExecution(), pair) == said(flights, SpiderTestSuite(), pair) == [False]


def test_a_result_with_many_equal_columns_is_compared_at_once(flights: Path) -> None:
    """The program would try ten factorial orders of the columns."""
    ones, two = ", ".join("1" * 9), "SELECT {}, 2 UNION ALL SELECT {}, 3"
    other = f"SELECT 3, {ones} UNION ALL SELECT 2, {ones}"
    assert said(flights, SpiderTestSuite(), [(two.replace("{}", ones), other)]) == [True]


@pytest.mark.slow
def test_one_of_several_right_queries_is_enough(flights: Path) -> None:
    golds = ("SELECT max(uid) FROM airlines", "SELECT count(*) FROM airlines")
    right, broken = judge(
        Nl2SqlTask({"db": flights}),
        SpiderTestSuite(),
        answered("SELECT count(uid) FROM airlines", golds),
        answered("SELECT count(uid) FROM airlines", ("SELECT Airlin FROM airlines", *golds)),
    )
    assert value(right) == value(broken) == 1.0


@pytest.mark.slow
def test_a_wrong_prediction_is_told_where(flights: Path) -> None:
    (item,) = judge(
        Nl2SqlTask({"db": flights}), SpiderTestSuite(), answered("SELECT 4", "SELECT count(*) FROM airlines")
    )
    assert reasons(item) == "other rows on flight_2_other.sqlite"


def test_a_time_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than 0 seconds"):
        BirdExecution(seconds=0)
