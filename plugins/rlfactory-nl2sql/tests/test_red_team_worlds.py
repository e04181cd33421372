"""Wrong predictions about generated databases are found out, whichever kind of question they answer."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from red_team.equal_in_worlds import reason_for_equal_in_world
from red_team.judging import assert_found_out
from red_team.mutations import Wrong, memorised, mutants
from rlfactory_nl2sql.worlds.questions import KINDS
from rlfactory_nl2sql.worlds.world import World

QUESTIONS = 60


def wrong_in(world: World, path: Path) -> list[Wrong]:
    """Mutations of each question's query, and its answer as constants; the query stands for its name."""
    columns = {table.name: [column.name for column in table.columns] for table in world.schema.tables}
    found = []
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        for question in world.questions:
            made = mutants(question.sql, question.sql, columns, random.Random(question.sql))
            found += [one for one in made if reason_for_equal_in_world(one.gold, one.how, world.schema) is None]
            found += memorised(question.sql, connection.execute(question.sql).fetchall())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_wrong_predictions_about_generated_databases(tmp_path: Path, seed: int) -> None:
    world = World.make(seed, "eval-0", QUESTIONS)
    assert {question.kind for question in world.questions} == set(KINDS)
    world.database(path := tmp_path / "world.sqlite").close()
    wrong = wrong_in(world, path)
    assert len(wrong) > 600
    assert_found_out(path, wrong, {question.sql: question.sql for question in world.questions})
