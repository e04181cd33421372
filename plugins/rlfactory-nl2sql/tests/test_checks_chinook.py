"""What the static checks say of correct queries is held against what SQLite answers to them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rlfactory_nl2sql.checks.constants import constants
from rlfactory_nl2sql.checks.ordering import cut, is_ordered, tie_breaks
from rlfactory_nl2sql.checks.parsing import Query, parse_query
from rlfactory_nl2sql.schema import Column, Schema, Table

CHINOOK = Path(__file__).parents[4] / "shared" / "cases" / "chinook.sqlite"

QUERIES = [
    "SELECT Name FROM Artist",
    "SELECT * FROM Genre",
    "SELECT g.* FROM Genre g",
    "SELECT COUNT(*) FROM Track",
    "select name from artist where artistid = 1",
    'SELECT "Name" FROM "Artist" WHERE [ArtistId] < 5 AND `Name` <> \'x\'',
    'SELECT Name FROM Artist WHERE Name = "AC/DC"',
    "SELECT rowid, Name FROM Artist WHERE _rowid_ < 4",
    "SELECT main.Artist.Name FROM main.Artist",
    "SELECT name, type FROM sqlite_master",
    "SELECT Name FROM Track WHERE UnitPrice BETWEEN 0.5 AND 1.0 AND Composer IS NOT NULL",
    "SELECT Name FROM Track WHERE NOT (GenreId = 1 OR GenreId = 2) AND Milliseconds / 1000 > 600",
    "SELECT Name FROM Track WHERE GenreId IN (1, 2, 3) AND Name LIKE '%love%' AND Name NOT GLOB 'A*'",
    "SELECT T1.Title, T2.Name FROM Album AS T1 JOIN Artist AS T2 ON T1.ArtistId = T2.ArtistId",
    "SELECT Title, Name FROM Album JOIN Artist USING (ArtistId) WHERE ArtistId > 270",
    "SELECT Title, Name FROM Album NATURAL JOIN Artist ORDER BY Title LIMIT 4",
    "SELECT Title FROM Album, Artist WHERE Album.ArtistId = Artist.ArtistId AND Artist.Name LIKE 'B%'",
    ("SELECT a.Name, b.Title FROM Artist a LEFT OUTER JOIN Album b ON a.ArtistId = b.ArtistId WHERE b.Title IS NULL"),
    (
        "SELECT e.LastName, m.LastName AS boss FROM Employee e LEFT JOIN Employee m ON e.ReportsTo = "
        "m.EmployeeId ORDER BY boss, 1"
    ),
    "SELECT Country, COUNT(*) AS n FROM Customer GROUP BY Country HAVING n > 2 ORDER BY n DESC, Country",
    "SELECT Country, COUNT(*) FROM Customer GROUP BY 1 ORDER BY 2 DESC LIMIT 3",
    "SELECT Country AS c FROM Customer GROUP BY c ORDER BY COUNT(*) DESC, c LIMIT 3 OFFSET 2",
    (
        "SELECT BillingCountry FROM Invoice GROUP BY BillingCountry HAVING SUM(Total) > 50 ORDER BY "
        "SUM(Total) DESC LIMIT 5"
    ),
    ("SELECT DISTINCT BillingCity, BillingCountry FROM Invoice ORDER BY BillingCountry, BillingCity LIMIT 7"),
    "SELECT DISTINCT Composer FROM Track WHERE Composer IS NOT NULL ORDER BY 1 DESC LIMIT 5",
    "SELECT Name FROM Artist WHERE ArtistId IN (SELECT ArtistId FROM Album WHERE Title LIKE 'A%')",
    ("SELECT Name FROM Artist a WHERE EXISTS (SELECT 1 FROM Album WHERE ArtistId = a.ArtistId AND Title > a.Name)"),
    ("SELECT Name FROM Artist WHERE NOT EXISTS (SELECT * FROM Album WHERE Album.ArtistId = Artist.ArtistId)"),
    (
        "SELECT Name, (SELECT COUNT(*) FROM Album b WHERE b.ArtistId = a.ArtistId) AS albums FROM Artist a "
        "ORDER BY albums DESC LIMIT 3"
    ),
    "SELECT Name FROM Track WHERE Milliseconds = (SELECT MAX(Milliseconds) FROM Track)",
    (
        "SELECT Name FROM Track t WHERE Milliseconds > (SELECT AVG(u.Milliseconds) FROM Track u WHERE "
        "u.AlbumId = t.AlbumId) LIMIT 9"
    ),
    ("SELECT x.n FROM (SELECT GenreId, COUNT(*) AS n FROM Track GROUP BY GenreId) AS x WHERE x.n > 100 ORDER BY n"),
    "SELECT AVG(n) FROM (SELECT COUNT(*) n FROM Track GROUP BY AlbumId)",
    (
        "SELECT Name FROM (SELECT * FROM (SELECT Name, Milliseconds AS ms FROM Track) WHERE ms > 3000000) "
        "ORDER BY ms DESC"
    ),
    "SELECT y.c FROM (SELECT x.b AS c FROM (SELECT Name AS b FROM Artist) x) y WHERE y.c < 'B'",
    (
        "WITH t AS (SELECT CustomerId, SUM(Total) AS s FROM Invoice GROUP BY CustomerId) SELECT c.LastName, "
        "t.s FROM Customer c JOIN t ON c.CustomerId = t.CustomerId ORDER BY s DESC LIMIT 5"
    ),
    (
        "WITH a(x, y) AS (SELECT ArtistId, Name FROM Artist), b AS (SELECT x FROM a WHERE y LIKE 'A%') SELECT"
        " COUNT(x) FROM b"
    ),
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 10) SELECT SUM(n) FROM c",
    (
        "WITH RECURSIVE boss(id, depth) AS (SELECT EmployeeId, 0 FROM Employee WHERE ReportsTo IS NULL UNION "
        "ALL SELECT e.EmployeeId, depth + 1 FROM Employee e JOIN boss ON e.ReportsTo = boss.id) SELECT id, "
        "depth FROM boss ORDER BY depth, id"
    ),
    "SELECT Name FROM Artist UNION SELECT Name FROM Genre ORDER BY Name LIMIT 4",
    "SELECT City FROM Customer INTERSECT SELECT City FROM Employee",
    "SELECT ArtistId FROM Artist EXCEPT SELECT ArtistId FROM Album ORDER BY 1 DESC LIMIT 3",
    (
        "SELECT Name AS n, 'artist' AS kind FROM Artist UNION ALL SELECT Title, 'album' FROM Album ORDER BY "
        "kind, n LIMIT 6"
    ),
    (
        "SELECT Name, CASE WHEN Milliseconds > 600000 THEN 'long' WHEN Milliseconds > 200000 THEN 'song' ELSE"
        " 'short' END AS size FROM Track ORDER BY size, Name LIMIT 20"
    ),
    "SELECT CASE GenreId WHEN 1 THEN 'Rock' ELSE 'other' END, COUNT(*) FROM Track GROUP BY 1",
    "SELECT strftime('%Y', InvoiceDate) AS year, SUM(Total) FROM Invoice GROUP BY year ORDER BY year",
    "SELECT Name, Milliseconds / 60000.0 AS minutes FROM Track ORDER BY minutes DESC LIMIT 3",
    (
        "SELECT Name, RANK() OVER (PARTITION BY AlbumId ORDER BY Milliseconds DESC) AS r FROM Track WHERE "
        "AlbumId < 5 ORDER BY r, Name"
    ),
    (
        "SELECT Name FROM (SELECT Name, ROW_NUMBER() OVER (PARTITION BY GenreId ORDER BY Bytes DESC) rn FROM "
        "Track) WHERE rn = 1"
    ),
    "SELECT SUM(Total) OVER w FROM Invoice WINDOW w AS (ORDER BY InvoiceId) LIMIT 4",
    (
        "SELECT SUM(l.UnitPrice * l.Quantity) AS revenue, g.Name FROM InvoiceLine l JOIN Track t ON t.TrackId"
        " = l.TrackId JOIN Genre g ON g.GenreId = t.GenreId GROUP BY g.GenreId ORDER BY revenue DESC LIMIT 3"
    ),
    "SELECT COUNT(DISTINCT Composer), MIN(Bytes), MAX(Bytes), TOTAL(UnitPrice) FROM Track",
    "SELECT COUNT(*) FILTER (WHERE UnitPrice > 1) FROM Track",
    "SELECT FirstName || ' ' || LastName AS who FROM Customer ORDER BY who COLLATE NOCASE LIMIT 5",
    "SELECT UPPER(Name) FROM Artist WHERE LENGTH(Name) > 40 ORDER BY LENGTH(Name) DESC",
    ("SELECT COALESCE(Company, 'none'), IFNULL(State, '?'), NULLIF(City, 'Oslo') FROM Customer WHERE Fax IS NULL"),
    "SELECT CAST(Total AS INTEGER) AS t, COUNT(*) FROM Invoice GROUP BY t ORDER BY t DESC",
    (
        "SELECT Name FROM Track WHERE (AlbumId, GenreId) IN (SELECT AlbumId, GenreId FROM Track WHERE "
        "Composer = 'AC/DC')"
    ),
    "SELECT Name FROM Track WHERE AlbumId = 1 OR AlbumId = 2 AND GenreId = 1 OR UnitPrice > 1",
    (
        "SELECT p.Name, COUNT(pt.TrackId) FROM Playlist p LEFT JOIN PlaylistTrack pt ON p.PlaylistId = "
        "pt.PlaylistId GROUP BY p.PlaylistId, p.Name ORDER BY 2 DESC, 1"
    ),
    "SELECT a.City FROM Customer a CROSS JOIN Employee b WHERE a.City = b.City",
    (
        "SELECT t.Name FROM (Track t JOIN Album a ON t.AlbumId = a.AlbumId) JOIN Artist r ON r.ArtistId = "
        "a.ArtistId WHERE r.Name = 'U2'"
    ),
    "SELECT value FROM json_each('[1, 2, 3]') WHERE value > 1",
    "VALUES (1, 'a'), (2, 'b')",
    "SELECT v.column1 FROM (VALUES (1), (2)) AS v ORDER BY column1",
    "SELECT 1 AS one, 'two' AS two, NULL, 3.5",
    (
        "SELECT Name FROM Artist ORDER BY (SELECT COUNT(*) FROM Album WHERE Album.ArtistId = Artist.ArtistId)"
        " DESC, Name LIMIT 3"
    ),
    "SELECT GenreId, Name, MAX(Milliseconds) FROM Track GROUP BY GenreId ORDER BY 3 DESC LIMIT 4",
    ("SELECT Email FROM Customer WHERE SupportRepId IS 3 AND Country IS NOT 'USA' ORDER BY Email LIMIT 5 -- the last"),
]


@pytest.fixture(scope="module")
def chinook() -> Iterator[sqlite3.Connection]:
    if not CHINOOK.exists():
        pytest.skip("chinook.sqlite is not beside this checkout")
    with closing(sqlite3.connect(f"file:{CHINOOK}?mode=ro", uri=True)) as connection:
        yield connection


@pytest.fixture(scope="module")
def schema(chinook: sqlite3.Connection) -> Schema:
    names = chinook.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    return Schema(
        tuple(
            Table(name, tuple(Column(row[1], row[2]) for row in chinook.execute(f'PRAGMA table_info("{name}")')))
            for (name,) in names.fetchall()
        )
    )


def read(sql: str) -> Query:
    return parse_query(sql, "sqlite")


def rows(connection: sqlite3.Connection, sql: str) -> list[tuple[Any, ...]]:
    return connection.execute(sql).fetchall()


@pytest.mark.parametrize("sql", QUERIES)
def test_constants_are_of_columns_that_the_schema_has(sql: str, chinook: sqlite3.Connection, schema: Schema) -> None:
    rows(chinook, sql)

    assert all(
        constant.column is None or schema.table(constant.table or "") for constant in constants(read(sql), schema)
    )


@pytest.mark.parametrize("sql", QUERIES)
def test_whichever_way_ties_are_broken_the_uncut_rows_are_the_same(
    sql: str, chinook: sqlite3.Connection, schema: Schema
) -> None:
    query, own = read(sql), rows(chinook, sql)
    assert bool(tie_breaks(query, schema, len(own[0]))) >= is_ordered(query)
    found = cut(query)
    wider = rows(chinook, found.wider.sql)
    assert len(own) == len(found.part(wider))
    if found.wider is query:
        for each in tie_breaks(query, schema, len(own[0])):
            assert Counter(rows(chinook, each)) == Counter(own)
