"""Correct predictions that are written otherwise than the gold query are accepted, every one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from red_team.judging import verdicts, write_shop
from red_team.queries import golds, read

CHINOOK = Path(__file__).parents[4] / "shared" / "cases" / "chinook.sqlite"


def assert_accepted(path: Path, database: str, fewest: int) -> None:
    right = golds(database)
    pairs = [(right[name], sql) for name, queries in read(f"{database}_rewrites").items() for sql in queries]
    assert len(pairs) >= fewest
    found = verdicts(path, pairs)
    assert [(pair, one.reasons) for pair, one in zip(pairs, found, strict=True) if not one.passed] == []


@pytest.mark.slow
def test_rewrites_about_the_shop(tmp_path: Path) -> None:
    assert_accepted(write_shop(tmp_path / "shop.sqlite"), "shop", fewest=25)


@pytest.mark.slow
def test_rewrites_about_chinook() -> None:
    if not CHINOOK.is_file():
        pytest.skip(f"the Chinook sample database is not there: {CHINOOK}")
    assert_accepted(CHINOOK, "chinook", fewest=140)
