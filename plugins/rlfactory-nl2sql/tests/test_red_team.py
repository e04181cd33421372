"""Wrong predictions are found out: none is accepted under the default semantics.

They are made by rule (`red_team.mutations`) and by hand (`*_wrong.sql`) of correct queries, about Chinook and a shop.
A mutation that means the same as its query is no wrong prediction; `red_team.equal` says why.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from red_team.equal import reason_for_equal
from red_team.judging import assert_found_out, write_shop
from red_team.mutations import Wrong, memorised, mutants
from red_team.queries import golds, read

CHINOOK = Path(__file__).parents[4] / "shared" / "cases" / "chinook.sqlite"
OTHER_SEED = 1  # of the mutations: a set that `instances` was not made with in view


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write_shop(tmp_path / "shop.sqlite")


@pytest.fixture
def chinook() -> Path:
    if not CHINOOK.is_file():
        pytest.skip(f"the Chinook sample database is not there: {CHINOOK}")
    return CHINOOK


def by_hand(database: str) -> list[Wrong]:
    return [Wrong(name, "by hand", sql) for name, queries in read(f"{database}_wrong").items() for sql in queries]


def by_rule(path: Path, database: str, seed: int) -> list[Wrong]:
    """Mutations, and the answers themselves as constants."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        columns = {table: [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')] for (table,) in names}
        found = []
        for name, gold in golds(database).items():
            made = mutants(name, gold, columns, random.Random(f"{seed} {name}"))
            found += [one for one in made if reason_for_equal(name, one.how) is None]
            found += memorised(name, connection.execute(gold).fetchall())
        return found


@pytest.mark.slow
def test_wrong_predictions_about_the_shop(shop: Path) -> None:
    wrong = by_hand("shop") + by_rule(shop, "shop", seed=0)[::5]
    assert len(wrong) > 80
    assert_found_out(shop, wrong, golds("shop"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, OTHER_SEED])
def test_all_wrong_predictions_about_the_shop(shop: Path, seed: int) -> None:
    wrong = by_rule(shop, "shop", seed)
    assert len(wrong) > 300
    assert_found_out(shop, wrong, golds("shop"))


@pytest.mark.slow
def test_wrong_predictions_about_chinook(chinook: Path) -> None:
    wrong = by_hand("chinook") + by_rule(chinook, "chinook", seed=0)
    assert len(wrong) > 1300
    assert_found_out(chinook, wrong, golds("chinook"))


@pytest.mark.slow
def test_other_wrong_predictions_about_chinook(chinook: Path) -> None:
    wrong = by_rule(chinook, "chinook", OTHER_SEED)[::4]
    assert len(wrong) > 300
    assert_found_out(chinook, wrong, golds("chinook"))
