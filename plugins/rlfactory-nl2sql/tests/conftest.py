"""A small database, and a cache that is thrown away."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # what several tests share

from database_servers import PASSWORD, NotInstalledError, Server, mariadb_server, postgres_server
from sql_databases import VARIABLE

SHOPS = """
CREATE TABLE city (id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE shop (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, sales REAL, city_id INTEGER NOT NULL REFERENCES city (id)
);
INSERT INTO city VALUES (1, 'Oslo', 'Norway'), (2, 'Bergen', 'Norway'), (3, 'Lyon', 'France');
INSERT INTO shop VALUES
    (1, 'Fjord', 10.5, 1), (2, 'Nord', 7, 1), (3, 'Regn', NULL, 2), (4, 'Soie', 12, 3), (5, 'Quai', 3, 3);
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("RLFACTORY_CACHE", str(folder))
    return folder


@pytest.fixture
def shops(tmp_path: Path) -> Path:
    """An SQLite file with cities and their shops."""
    path = tmp_path / "shops.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SHOPS)
    return path


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """PostgreSQL on loopback, once for all tests."""
    pytest.importorskip("psycopg", reason="the extra postgresql is not installed")
    try:
        with postgres_server() as server, _password():
            yield server
    except NotInstalledError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """MariaDB on loopback, once for all tests; its start takes seconds, so mark what needs it as slow."""
    pytest.importorskip("pymysql", reason="the extra mysql is not installed")
    try:
        with mariadb_server() as server, _password():
            yield server
    except NotInstalledError as error:
        pytest.skip(str(error))


@contextmanager
def _password() -> Iterator[None]:
    os.environ[VARIABLE] = PASSWORD
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
