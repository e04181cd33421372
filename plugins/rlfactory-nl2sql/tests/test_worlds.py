"""Generated worlds: the same ones each time, worth asking about, and shown without giving the look-ups away."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rlfactory_nl2sql.formatting import table_line
from rlfactory_nl2sql.worlds.names import MEANING, NAMES, VALUES, guess_names
from rlfactory_nl2sql.worlds.questions import KINDS
from rlfactory_nl2sql.worlds.tiny import recipe
from rlfactory_nl2sql.worlds.world import World, samples, world_file

from rlfactory_core import ToolSpec
from rlfactory_core.tiny import Demonstration, TinyModelRecipe

TOOLS = [
    ToolSpec(name, name, {"type": "object", "properties": {}}) for name in ("list_tables", "describe", "run_query")
]


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return [World.make(3, f"train-{number}", 24) for number in range(20)]


def test_a_world_is_made_of_its_seed_and_its_name() -> None:
    world = World.make(5, "train-1")
    assert world == World.make(5, "train-1")
    assert world.schema != World.make(5, "train-2").schema
    assert world.schema != World.make(6, "train-1").schema


def test_the_database_does_not_depend_on_how_many_questions_are_asked() -> None:
    few, many = World.make(5, "train-1", 6), World.make(5, "train-1", 60)
    assert few.rows == many.rows
    assert (len(few.questions), len(many.questions)) == (6, 60)


def test_every_question_has_an_answer_and_no_two_are_alike(worlds: list[World]) -> None:
    for world in worlds:
        with closing(world.database(":memory:")) as connection:
            assert all(connection.execute(question.sql).fetchall() for question in world.questions)
        assert len({question.text for question in world.questions}) == len(world.questions)
        assert {question.kind for question in world.questions} == set(KINDS)


def test_questions_do_not_say_what_things_are_called(worlds: list[World]) -> None:
    """A question uses the plain word whatever the column is called; else there was nothing to look up."""
    for world in worlds:
        for question in world.questions:
            called = {name for name in re.findall(r"\w+", question.sql) if MEANING.get(name) not in (None, name)}
            assert not called & set(re.findall(r"\w+", question.text)), question


def test_foreign_keys_hold_and_names_are_unambiguous(worlds: list[World]) -> None:
    for world in worlds:
        with closing(world.database(":memory:")) as connection:
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        columns = [column.name for table in world.schema.tables for column in table.columns if MEANING.get(column.name)]
        assert len({MEANING.get(name) for name in columns}) == len(columns)


def test_no_name_means_two_things() -> None:
    names = [name for names in NAMES.values() for name in names]
    values = [value for values in VALUES.values() for value in values]
    assert len({*names, *values}) == len(names) + len(values)


def test_evaluation_asks_about_databases_that_training_does_not_have() -> None:
    schemas, databases, texts = {}, {}, {}
    for split in ("train", "eval"):
        asked = list(samples(0, split))
        databases[split] = {sample.metadata["database"] for sample in asked}
        made = [World.make(0, name, 0) for name in sorted(databases[split])]
        schemas[split] = {tuple(map(table_line, world.schema.tables)) for world in made}
        texts[split] = {line for lines in schemas[split] for line in lines}
        assert len({sample.id for sample in asked}) == len(asked)
        assert {sample.slice for sample in asked} == set(KINDS)
    assert not databases["train"] & databases["eval"]
    assert not texts["train"] & texts["eval"]


def test_a_guess_is_the_same_query_under_other_names(worlds: list[World]) -> None:
    rng = random.Random(1)
    for question in worlds[0].questions:
        guess = guess_names(question.sql, rng)
        plain = [re.sub(r"[a-z]+", lambda word: MEANING.get(word[0], word[0]), sql) for sql in (question.sql, guess)]
        assert plain[0] == plain[1]
    assert any(guess_names(question.sql, rng) != question.sql for question in worlds[0].questions)


def test_a_world_file_holds_the_world_and_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))
    path = world_file(2, "eval-1")
    made = path.stat().st_mtime_ns
    world = World.make(2, "eval-1")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        for table, rows in world.rows.items():
            assert connection.execute(f"SELECT * FROM {table}").fetchall() == list(rows)
    assert world_file(2, "eval-1") == path
    assert path.stat().st_mtime_ns == made
    assert world_file(2, "eval-2") != path
    assert world_file(3, "eval-1") != path


@pytest.fixture(scope="module")
def made() -> TinyModelRecipe:
    return recipe(0, TOOLS)


def demonstrations(made: TinyModelRecipe, number: int) -> Iterator[Demonstration]:
    rng = random.Random(0)
    for stage in made.stages:
        for _ in range(number):
            yield stage.demonstrate(rng)


@pytest.mark.slow
def test_no_demonstration_looks_something_up_before_it_answers(made: TinyModelRecipe) -> None:
    shown = list(demonstrations(made, 500))
    said = [episode[-1].content for episode in shown]
    assert all([message.role for message in episode] == ["user", "assistant"] for episode in shown)
    assert all(("<answer>" in text) != ("<tool_call>" in text) for text in said)
    assert {text.count("<answer>") for text in said} == {0, 1}


def test_answers_are_right_where_the_schema_is_shown_and_guessed_where_it_is_not(made: TinyModelRecipe) -> None:
    right = {True: 0, False: 0}
    total = {True: 0, False: 0}
    for user, last in demonstrations(made, 300):
        if "<answer>" not in last.content:
            continue
        book = user.content.partition("\n")[2]
        shown = bool(book)
        names = [name for name in re.findall(r"[a-z]+", last.content) if MEANING.get(name)]
        right[shown] += all(re.search(rf"\b{name}\b", book) for name in names)
        total[shown] += 1
    assert right[True] == total[True] > 100
    assert right[False] == 0 < total[False]


def test_demonstrations_are_about_databases_of_their_own(made: TinyModelRecipe) -> None:
    """A cell of a schema is not unique, a whole table's line is: none that is evaluated on was shown."""
    shown = {line for user, _ in demonstrations(made, 300) for line in user.content.splitlines()}
    evaluated = {str(sample.metadata["database"]) for sample in samples(0, "eval")}
    tables = [table for name in evaluated for table in World.make(0, name, 0).schema.tables]
    assert not shown & {table_line(table) for table in tables}


@pytest.mark.slow
def test_the_recipe_is_another_one_for_another_seed(made: TinyModelRecipe) -> None:
    assert made.fingerprint == recipe(0, TOOLS).fingerprint
    assert made.fingerprint != recipe(1, TOOLS).fingerprint


def test_the_tokenizer_writes_every_name_as_one_token(made: TinyModelRecipe) -> None:
    """What has to be found and copied is one step for the model."""
    tiny_model = pytest.importorskip(
        "rlfactory_core.engines.local.tiny.tiny_model", reason="needs rlfactory-core[local]"
    )
    tokenizer = tiny_model.build_tokenizer(made.vocabulary(), made.vocab_size)
    names = [name for names in NAMES.values() for name in names]
    assert [name for name in names if len(tokenizer.encode(f" {name}")) != 1] == []
    assert [name for name in names if len(tokenizer.encode(name)) != 1] == []
