"""The reward ``bird_execution`` counts what BIRD's own evaluation program counts.

Every expected value below is what the program itself said of these queries, run once on the database that `flights`
writes: `execute_model` of bird/llm/src/evaluation.py of AlibabaResearch/DAMO-ConvAI (commit 483554e). The first queries
are pairs of evaluation_examples/gold.txt and predict.txt of taoyds/test-suite-sql-eval; the others try each rule.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from rlfactory_nl2sql.rewards.bird import BirdExecution
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
ROWS = """
INSERT INTO airlines VALUES (1, 'United Airlines', 'UAL', 'USA'), (2, 'JetBlue Airways', 'JetBlue', 'USA'),
    (3, 'Lufthansa', 'LH', NULL), (4, 'Delta Airlines', 'Delta', 'USA');
INSERT INTO airports VALUES ('Aberdeen', 'ABZ', 'Dyce', 'UK', 'UK'), ('Anthony', 'ANY', 'Anthony', 'USA', 'US'),
    ('Alton', 'ALN', 'Alton', 'USA', 'US'), ('Akron', 'AKO', 'Colorado Plains', 'USA', 'US');
INSERT INTO flights VALUES (1, 28, 'ABZ', 'ANY', 10.0), (1, 44, 'ANY', 'ALN', 1.0), (2, 19, 'ALN', 'ABZ', 10.5),
    (4, 7, 'ABZ', 'ALN', NULL), (4, 28, 'AKO', 'ANY', 3.0), (3, 10, 'ABZ', 'ABZ', 1.0);
"""
CASES = [  # gold query, prediction; is it right to the program?
    ("SELECT * FROM AIRLINES", "select * from airlines", True),
    ("SELECT * FROM AIRPORTS", "select * from airlines", False),
    ("SELECT Airline FROM AIRLINES", "select Airline from airlines", True),
    ("SELECT City ,  Country FROM AIRPORTS", "select Country,City from airports", False),
    ("SELECT AirportName FROM AIRPORTS", "select AirportName from airports", True),
    ("SELECT count(*) FROM AIRLINES", "select count(*) from airports where Country = 'terminal'", False),
    (
        'SELECT Country FROM AIRLINES WHERE Airline  =  "JetBlue Airways"',
        "select Country from airports where Country = 'terminal'",
        False,
    ),
    (
        'SELECT Airline ,  Abbreviation FROM AIRLINES WHERE Country  =  "USA"',
        (
            "select * from airlines as T1 join airports as T2 "
            "where T1.Airline = 'terminal' and T2.AirportName = 'terminal'"
        ),
        False,
    ),
    (
        'SELECT * FROM AIRLINES WHERE Airline  =  "JetBlue Airways"',
        "SELECT uid, Airline, Abbreviation, Country FROM AIRLINES WHERE Airline = 'JetBlue Airways'",
        True,
    ),
    ('SELECT count(*) FROM AIRLINES WHERE Country  =  "USA"', "SELECT 3", True),
    ("SELECT Airline FROM flights", "SELECT DISTINCT Airline FROM flights", True),
    ("SELECT Airline FROM flights", "SELECT Airline FROM flights GROUP BY Airline", True),
    ("SELECT FlightNo FROM flights ORDER BY FlightNo", "SELECT FlightNo FROM flights ORDER BY FlightNo DESC", True),
    ("SELECT FlightNo FROM flights", "SELECT FlightNo FROM flights ORDER BY FlightNo DESC", True),
    (
        "SELECT Airline FROM (SELECT * FROM flights ORDER BY Miles)",
        "SELECT Airline FROM flights ORDER BY Airline",
        True,
    ),
    ("SELECT Airline FROM airlines WHERE uid > 90", "SELECT uid, Country FROM airlines WHERE uid > 90", True),
    ("SELECT Airline FROM airlines WHERE uid > 90", "SELECT NULL", False),
    (
        "SELECT uid, Airline, Abbreviation, Country FROM airlines",
        "SELECT Country, Abbreviation, Airline, uid FROM airlines",
        False,
    ),
    ("SELECT SourceAirport, DestAirport FROM flights", "SELECT DestAirport, SourceAirport FROM flights", False),
    (
        "SELECT FlightNo, SourceAirport FROM flights ORDER BY FlightNo, SourceAirport",
        "SELECT SourceAirport, FlightNo FROM flights ORDER BY FlightNo, SourceAirport",
        False,
    ),
    ("SELECT uid, uid + 1 FROM airlines", "SELECT uid + 1, uid + 2 FROM airlines", False),
    ("SELECT uid, -uid FROM airlines", "SELECT -uid, -uid FROM airlines", False),
    ("SELECT 1, 2, 1, 2 UNION ALL SELECT 2, 1, 1, 2", "SELECT 1, 1, 2, 2 UNION ALL SELECT 1, 2, 2, 1", False),
    ("SELECT 1, 2, 1, 2 UNION ALL SELECT 2, 1, 1, 2", "SELECT 1, 1, 2, 2 UNION ALL SELECT 1, 2, 1, 2", False),
    ("SELECT 1", "SELECT 1.0", True),
    ("SELECT 1", "SELECT '1'", False),
    ("SELECT 10, 1", "SELECT 10, 1.0", True),
    (
        "SELECT Miles FROM flights WHERE Miles = 2 OR Miles = 3",
        "SELECT CAST(Miles AS INTEGER) FROM flights WHERE Miles IN (2, 3)",
        True,
    ),
    ("SELECT 0.3", "SELECT 0.1 + 0.2", False),
    ("SELECT Country FROM airlines WHERE Country IS NULL", "SELECT NULL FROM airlines WHERE Country IS NULL", True),
    ("SELECT CAST(x'41ff' AS TEXT)", "SELECT CAST(x'41fe' AS TEXT)", False),
    ("SELECT FlightNo FROM flights WHERE Miles >= 3", "SELECT FlightNo FROM flights WHERE Miles > = 3", False),
    (
        "SELECT FlightNo FROM flights WHERE Miles <= 3",
        "SELECT FlightNo FROM flights WHERE Miles < = 3 AND Miles ! = 99",
        False,
    ),
    ("SELECT count(DISTINCT Airline) FROM flights", "SELECT count(Airline) FROM flights", False),
    ("SELECT DISTINCT Airline FROM flights", "SELECT Airline FROM flights", True),
    ("SELECT DISTINCT Airline FROM flights", "SELECT distinct Airline FROM flights /* distinct */ -- distinct", True),
    ("SELECT 'distinct', \"Airline\" FROM airlines", "SELECT 'distinct', Airline FROM airlines", True),
    ("SELECT 'a distinct b'", "SELECT 'a  b'", False),
    ("SELECT 2020", "SELECT YEAR(CURDATE())", False),
    ("SELECT 1", "SELECT value", False),
    ("SELECT Airline FROM airlines", "SELECT Airlin FROM airlines", False),
    ("SELECT Airline FROM airlines", "SELECT Airline FROM", False),
    ("SELECT Airline FROM airlines", "SELECT Airline FROM airlines; SELECT 1", False),
    ("SELECT Airline FROM airlines", "SELECT Airline FROM airlines;", True),
]


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    """Spider's flight_2 with few rows; `Miles` is ours."""
    with closing(sqlite3.connect(tmp_path / "flight_2.sqlite")) as connection:
        connection.executescript(SCHEMA + ROWS)
    return tmp_path / "flight_2.sqlite"


def said(path: Path, metric: BirdExecution, pairs: Sequence[tuple[str, str]]) -> list[bool | None]:
    items = judge(Nl2SqlTask({"db": path}), metric, *(answered(sql, gold) for gold, sql in pairs))
    return [None if (score := value(item)) is None else score == 1.0 for item in items]


@pytest.mark.slow
def test_the_metric_says_what_the_official_program_says(flights: Path) -> None:
    found = said(flights, BirdExecution(), [(gold, prediction) for gold, prediction, _ in CASES])
    assert [(*case[:2], one) for case, one in zip(CASES, found, strict=True)] == CASES


@pytest.mark.slow
def test_what_fails_has_no_end_or_writes_is_wrong(flights: Path) -> None:
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
    pairs = [
        ("SELECT Airlin FROM airlines", "SELECT Airline FROM airlines"),
        ("SELECT count(*) FROM airlines", endless),
        ("SELECT count(*) FROM airlines WHERE uid > 90", "DELETE FROM airlines"),
    ]
    assert said(flights, BirdExecution(seconds=0.3), pairs) == [False, False, False]


@pytest.mark.slow
def test_one_of_several_right_queries_is_enough_and_a_wrong_prediction_is_told_where(flights: Path) -> None:
    golds = ("SELECT max(uid) + 1 FROM airlines", "SELECT count(*) FROM airlines")
    right, broken, wrong = judge(
        Nl2SqlTask({"db": flights}),
        BirdExecution(),
        answered("SELECT count(uid) FROM airlines", golds),
        answered("SELECT count(uid) FROM airlines", ("SELECT Airlin FROM airlines", *golds)),
        answered("SELECT 5", golds[1]),
    )
    assert value(right) == value(broken) == 1.0
    assert reasons(wrong) == "other rows on flight_2.sqlite"


def test_a_time_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than 0 seconds"):
        BirdExecution(seconds=0)
