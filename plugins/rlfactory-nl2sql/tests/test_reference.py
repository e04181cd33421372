"""Which database a path or a URL names, and that no secret is kept."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from rlfactory_nl2sql.connection import QueryLimits
from rlfactory_nl2sql.databases import reference
from rlfactory_nl2sql.databases.reference import DatabaseRef, connection_url, parse_reference

from rlfactory_core.errors import MissingExtraError, UsageError


def test_a_file_is_told_by_its_first_bytes_whatever_its_name(shops: Path, tmp_path: Path) -> None:
    renamed = shops.rename(tmp_path / "shops.txt")

    assert parse_reference(renamed) == DatabaseRef("sqlite", str(renamed))


def test_a_relative_path_keeps_its_meaning_in_another_folder(
    shops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_reference(shops.name).location == str(shops)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql://me@db.example/shop", "postgres"),
        ("postgresql+psycopg://me:${PGPASSWORD}@db.example/shop", "postgres"),
        ("mysql+pymysql://me@db.example/shop?charset=utf8mb4", "mysql"),
        ("MariaDB://me@db.example/shop", "mysql"),
    ],
)
def test_a_servers_url_is_kept_as_it_is(url: str, kind: str) -> None:
    ref = parse_reference(url)

    assert (ref.kind, ref.location) == (kind, url)
    assert pickle.loads(pickle.dumps(ref)) == ref


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db.example/shop",
        "postgresql://me:a${X}hunter2@db.example/shop",
        "mysql://me@db.example/shop?password=hunter2",
        "mysql://me@db.example/shop?Passwd=hunter2&x=1",
        "pgsql://me:hunter2@db.example/shop",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(url)
    assert "hunter2" not in str(caught.value)
    assert "${PGPASSWORD}" in str(caught.value)


def test_the_environment_fills_a_url_only_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "p@ss/w:rd")
    monkeypatch.setenv("SHOP_HOST", "db.example")
    ref = parse_reference("postgresql://me:${SHOP_PASSWORD}@${SHOP_HOST}/shop?sslpassword=${SHOP_PASSWORD}")

    assert connection_url(ref) == "postgresql://me:p%40ss%2Fw%3Ard@db.example/shop?sslpassword=p%40ss%2Fw%3Ard"
    assert "p@ss" not in repr(ref)
    monkeypatch.delenv("SHOP_PASSWORD")
    with pytest.raises(UsageError, match="SHOP_PASSWORD"):
        connection_url(ref)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("missing.sqlite", "missing.sqlite cannot be read"),
        ("folder", "Spider or BIRD"),
        ("empty.sqlite", "it is empty"),
        ("notes.txt", "no SQLite file"),
        ("mysqll://me@db/shop", "Did you mean 'mysql'"),
        ("sqlite:///shops.sqlite", "the path of a SQLite file"),
        ("postgresql://me@[db/shop", "is no URL"),
    ],
)
def test_what_cannot_be_used_is_explained(
    text: str, says: str, shops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.sqlite").touch()
    (tmp_path / "notes.txt").write_text("SELECT 1")
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    assert says in str(caught.value)


def test_a_missing_driver_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")

    monkeypatch.setattr(reference, "import_module", absent)
    with pytest.raises(MissingExtraError, match=r"psycopg.*pip install 'rlfactory-nl2sql\[postgresql\]'"):
        reference.connect(DatabaseRef("postgres", "postgresql://me@db.example/shop"), QueryLimits())
