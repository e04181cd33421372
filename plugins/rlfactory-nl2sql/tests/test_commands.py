from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rlfactory_nl2sql.commands import nl2sql

from rlfactory_core.errors import RlfactoryError, UsageError

GOLD = "SELECT name FROM city WHERE country = 'Norway'"


def verify(db: Path | str, gold: str, pred: str, *more: str, **options: Any) -> Result:
    arguments = ["verify", "--db", str(db), "--gold", gold, "--pred", pred, *more]
    return CliRunner().invoke(nl2sql, arguments, catch_exceptions=False, **options)


def test_a_difference_is_shown_with_its_rows(shops: Path) -> None:
    shown = verify(shops, GOLD, "SELECT name FROM city WHERE id > 1")
    assert shown.exit_code == 0
    assert shown.stdout.startswith("FAILED  multiset, compared on 1 instance, gold ")
    lines = shown.stdout.splitlines()
    assert lines[2:] == [
        "",
        "  expected, differing rows first",
        "    name",
        "    'Oslo'",
        "    'Bergen'",
        "",
        "  got, differing rows first",
        "    name",
        "    'Lyon'",
        "    'Bergen'",
    ]
    assert "Oslo" in lines[1]


@pytest.mark.slow
def test_json_has_the_verdict_its_reasons_and_timings(shops: Path) -> None:
    passed = json.loads(verify(shops, GOLD, f"{GOLD} ORDER BY id", "--json").stdout)
    assert passed["passed"] is True
    assert passed["reasons"] == []
    assert passed["instances"] == 21  # five, and sixteen for another form
    assert passed["gold_seconds"] > 0
    assert passed["prediction_seconds"] > 0
    failed = json.loads(verify(shops, GOLD, "SELECT nam FROM city", "--json").stdout)
    assert failed["passed"] is False
    assert failed["failure"] == "error"
    assert "no such column: nam" in failed["reasons"][0]
    unknown = verify(shops, "SELECT nam FROM city", GOLD, "--json")
    assert unknown.exit_code == 0
    assert json.loads(unknown.stdout)["passed"] is None


@pytest.mark.slow
def test_the_options_are_used(shops: Path) -> None:
    wrong = "SELECT name FROM city WHERE country = 'Norway' OR name = 'Oslo' ORDER BY name"
    assert verify(shops, GOLD, wrong, "--instances", "1").stdout.startswith("PASSED")
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
    assert "longer than 0.1 s" in verify(shops, GOLD, endless, "--seconds", "0.1").stdout
    assert "longer than 0.1 s" in verify(shops, endless, GOLD, "--gold-seconds", "0.1").stdout


def test_sql_comes_from_a_file_or_from_standard_input_too(shops: Path, tmp_path: Path) -> None:
    (tmp_path / "gold.sql").write_text(GOLD)
    shown = verify(shops, f"@{tmp_path / 'gold.sql'}", "-", input=f"{GOLD};\n")
    assert shown.stdout.startswith("PASSED")


@pytest.mark.parametrize(
    ("db", "gold", "more", "words"),
    [
        ("no.sqlite", GOLD, (), "cannot be read"),
        ("oracle://host/name", GOLD, (), "no kind of database"),
        ("", "@no.sql", (), "No SQL can be read from the file no.sql"),
        ("", "-", (), "standard input"),
        ("", GOLD, ("--instances", "0"), "at least 1 instance"),
    ],
)
def test_what_cannot_be_asked_is_said(shops: Path, db: str, gold: str, more: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        verify(db or shops, gold, "-", *more, input=GOLD)
    assert isinstance(caught.value, RlfactoryError)
    assert caught.value.exit_code == 2
