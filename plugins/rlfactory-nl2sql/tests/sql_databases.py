"""The same small database on every system that rlfactory-nl2sql reads, with an account that only reads."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from database_servers import Server
from rlfactory_nl2sql.databases.reference import DatabaseRef, parse_reference

VARIABLE = "RLFACTORY_TEST_PASSWORD"  # what the URLs name; a fixture sets it
TABLES = ("singer", "song", "sings", "note")
STATEMENTS = (
    (
        "CREATE TABLE singer (id INTEGER PRIMARY KEY, name VARCHAR(40) NOT NULL, email VARCHAR(40) UNIQUE, "
        "fee DECIMAL(8, 2))"
    ),
    (
        "CREATE TABLE song (id INTEGER PRIMARY KEY, singer_id INTEGER, title VARCHAR(40), seconds INTEGER, "
        "CHECK (seconds > 0), FOREIGN KEY (singer_id) REFERENCES singer (id))"
    ),
    "CREATE TABLE sings (singer_id INTEGER NOT NULL, song_id INTEGER NOT NULL, PRIMARY KEY (song_id, singer_id))",
    "CREATE TABLE note (text VARCHAR(400))",
    "CREATE VIEW sung AS SELECT singer.name, song.title FROM singer JOIN song ON song.singer_id = singer.id",
    "CREATE VIEW stars AS SELECT name, count(*) AS songs FROM sung GROUP BY name",
    "INSERT INTO singer VALUES (1, 'Ada', 'ada@x', 10.50), (2, 'Bo', NULL, NULL), (3, 'Cy', 'cy@x', 0.25)",
    "INSERT INTO song VALUES (1, 1, 'It''s music.song', 60), (2, 1, 'Two', 90), (3, 2, 'Three', NULL)",
    "INSERT INTO sings VALUES (1, 1), (2, 1), (2, 2)",
    "INSERT INTO note VALUES " + ", ".join(f"('note {number:03}')" for number in range(100)),
)


def make_file(path: Path) -> DatabaseRef:
    """A SQLite file."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in STATEMENTS:
            connection.execute(statement)
        connection.commit()
    return parse_reference(path)


def postgres_admin(server: Server, database: str) -> Any:
    """The administrator's connection."""
    import psycopg

    return psycopg.connect(
        host=server.host,
        port=server.port,
        user=server.admin,
        password=server.password,
        dbname=database,
        autocommit=True,
    )


def make_postgres(server: Server) -> DatabaseRef:
    """The database ``music``, made anew, and the account ``reader``."""
    with postgres_admin(server, "postgres") as admin:
        admin.execute("DROP DATABASE IF EXISTS music WITH (FORCE)")
        admin.execute("DROP ROLE IF EXISTS reader")
        admin.execute("CREATE DATABASE music")
        admin.execute(f"CREATE ROLE reader LOGIN PASSWORD '{server.password}'")
        admin.execute("ALTER ROLE reader SET default_transaction_read_only = on")
    with postgres_admin(server, "music") as admin:
        for statement in STATEMENTS:
            admin.execute(statement)
        admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    return parse_reference(f"postgresql://reader:${{{VARIABLE}}}@{server.host}:{server.port}/music")


def mysql_admin(server: Server, database: str | None = None) -> Any:
    """The administrator's connection."""
    import pymysql

    return pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.admin,
        password=server.password,
        database=database,
        autocommit=True,
    )


def make_mysql(server: Server) -> DatabaseRef:
    """The database ``music``, made anew, and the account ``reader``."""
    with closing(mysql_admin(server)) as admin, admin.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS music")
        cursor.execute("DROP USER IF EXISTS reader")
        cursor.execute("CREATE DATABASE music")
        cursor.execute("USE music")
        for statement in STATEMENTS:
            cursor.execute(statement)
        cursor.execute(f"CREATE USER reader IDENTIFIED BY '{server.password}'")
        cursor.execute("GRANT SELECT, SHOW VIEW ON music.* TO reader")
        cursor.execute(r"GRANT SELECT, INSERT, CREATE, DROP, CREATE VIEW, SHOW VIEW ON `rlfactory\_%`.* TO reader")
    return parse_reference(f"mysql://reader:${{{VARIABLE}}}@{server.host}:{server.port}/music")


def postgres_rows(server: Server) -> list[list[str]]:
    """What the tables hold, seen by the administrator."""
    with postgres_admin(server, "music") as admin:
        return [sorted(map(repr, admin.execute(f"SELECT * FROM {table}").fetchall())) for table in TABLES]


def mysql_rows(server: Server) -> list[list[str]]:
    """What the tables hold, and which databases there are, seen by the administrator."""
    with closing(mysql_admin(server, "music")) as admin, admin.cursor() as cursor:
        found = []
        for query in ("SHOW DATABASES", *(f"SELECT * FROM {table}" for table in TABLES)):
            cursor.execute(query)
            found.append(sorted(map(repr, cursor.fetchall())))
        return found
