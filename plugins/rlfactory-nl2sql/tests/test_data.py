"""Questions in the layouts of Spider and BIRD, and the folders of databases that they are about."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rlfactory_nl2sql.data import DatabaseFolder
from rlfactory_nl2sql.task import Nl2SqlTask

from rlfactory_core import Sample
from rlfactory_core.config import RunConfig
from rlfactory_core.errors import DataError, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.runner.making import make_tasks

SPIDER = {
    "db_id": "shops",
    "query": "SELECT name FROM shop WHERE city_id  =  1",
    "query_toks": ["SELECT", "name", "FROM", "shop", "WHERE", "city_id", "=", "1"],
    "query_toks_no_value": ["select", "name", "from", "shop", "where", "city_id", "=", "value"],
    "question": "Which shops are in Oslo?",
    "question_toks": ["Which", "shops", "are", "in", "Oslo", "?"],
    "sql": {"from": {"table_units": [["table_unit", 1]], "conds": []}, "select": [False, []], "limit": None},
}
BIRD = {
    "question_id": 7,
    "db_id": "shops",
    "question": "How many shops sold nothing?",
    "evidence": "sold nothing refers to sales IS NULL",
    "SQL": "SELECT COUNT(*) FROM shop WHERE sales IS NULL",
    "difficulty": "simple",
}


@pytest.fixture
def folder(shops: Path) -> Path:
    """One database in the layout that Spider and BIRD share."""
    file = shops.parent / "database" / "shops" / "shops.sqlite"
    file.parent.mkdir(parents=True)
    shutil.copy(shops, file)
    return file.parent.parent


def write(path: Path, rows: Sequence[Any]) -> Path:
    lines = path.suffix != ".json"
    path.write_text("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows, indent=4), encoding="utf-8")
    return path


def load(path: Path, db: Path | None, task: Mapping[str, Any] = {}, **columns: str) -> list[Sample]:
    """The training samples of ``rlfactory run --plugin nl2sql --db … --data …``."""
    data = {"train": path, "columns": columns}
    config = RunConfig(plugin="nl2sql", task={"db": db, **task}, data=data, rewards={"format": 1.0})  # type: ignore[arg-type]
    return make_tasks(config, Registry()).samples("train")


@pytest.mark.parametrize("name", ["train_spider.json", "train.jsonl"])
def test_spider(folder: Path, name: str) -> None:
    first, second = load(write(folder.parent / name, [SPIDER, {**SPIDER, "question": "And?"}]), folder)
    assert (first.id, second.id) == ("0", "1")
    system, question = first.messages
    assert (system.role, question.content) == ("system", "Which shops are in Oslo?")
    assert "SQLite" in system.content
    assert "<answer>" in system.content
    assert first.answer == SPIDER["query"]
    assert first.metadata == {"database": "shops"}  # the parses are of no use here, and large


@pytest.mark.parametrize("name", ["dev.json", "mini_dev_sqlite.jsonl"])
def test_bird(folder: Path, name: str) -> None:
    other = {**BIRD, "question_id": 9, "evidence": "", "difficulty": "challenging"}
    first, second = load(write(folder.parent / name, [BIRD, other]), folder)
    assert (first.id, first.slice, second.id, second.slice) == ("7", "simple", "9", "challenging")
    question = first.messages[1].content
    assert question == "How many shops sold nothing?\n\nEvidence: sold nothing refers to sales IS NULL"
    assert second.messages[1].content == BIRD["question"]
    assert first.answer == BIRD["SQL"]


def test_bird_s_training_rows_have_no_ids_and_no_difficulty(folder: Path) -> None:
    row = {key: BIRD[key] for key in ("db_id", "question", "evidence", "SQL")}
    assert [(each.id, each.slice) for each in load(write(folder.parent / "train.json", [row, row]), folder)] == [
        ("0", ""),
        ("1", ""),
    ]


def test_one_database_for_all_questions_needs_no_names(shops: Path) -> None:
    row = {"question": "How many?", "query": "SELECT COUNT(*) FROM shop"}
    (sample,) = load(write(shops.parent / "own.json", [row]), shops)
    assert Nl2SqlTask({"db": shops}).reference(sample).location == str(shops)


def test_the_core_s_layouts_are_read_too(folder: Path) -> None:
    row = {"prompt": "How many?", "sql": "SELECT COUNT(*) FROM shop", "db_id": "shops"}
    (sample,) = load(write(folder.parent / "own.jsonl", [row]), folder, prompt="prompt", answer="sql")
    assert sample.answer == row["sql"]
    assert Nl2SqlTask({"db": folder}).reference(sample).location == str(folder / "shops" / "shops.sqlite")


def test_columns_that_are_named_count(folder: Path) -> None:
    row = {**SPIDER, "text": "How many?", "gold": "SELECT COUNT(*) FROM shop"}
    (sample,) = load(write(folder.parent / "own.jsonl", [row]), folder, prompt="text", answer="gold")
    assert (sample.messages[1].content, sample.answer) == ("How many?", row["gold"])


def test_without_db_a_question_names_a_file_beside_it(shops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"question": "How many?", "query": "SELECT COUNT(*) FROM shop", "database": "shops.sqlite"}
    path = write(shops.parent / "own.jsonl", [row])
    monkeypatch.chdir("/")
    (sample,) = load(path, None)
    assert Nl2SqlTask().reference(sample).location == str(shops)


REMOTE = "postgresql://me:${SECRET_OF_MINE}@db.example/shop"


def test_a_row_s_url_is_refused_unless_the_user_wrote_it(tmp_path: Path) -> None:
    path = write(tmp_path / "own.jsonl", [{"question": "How many?", "query": "SELECT 1", "database": REMOTE}])
    for task in ({}, {"other_databases": ["postgresql://me:${SECRET_OF_MINE}@db.example"]}):
        with pytest.raises(UsageError, match=r"only if you have allowed it.*--db URL.*other_databases"):
            load(path, None, task)
    (sample,) = load(path, None, {"other_databases": [REMOTE]})
    assert Nl2SqlTask({"other_databases": [REMOTE]}).reference(sample).location == REMOTE


def test_a_file_s_url_in_a_row_is_refused_too(shops: Path, tmp_path: Path) -> None:
    row = {"question": "How many?", "query": "SELECT 1", "database": f"file://{shops}"}
    with pytest.raises(UsageError, match="only if you have allowed it"):
        load(write(tmp_path / "own.jsonl", [row]), None)


def test_a_url_s_password_is_refused_where_urls_are_allowed() -> None:
    with pytest.raises(UsageError, match="holds a password"):
        Nl2SqlTask({"other_databases": ["postgresql://me:secret@db.example/shop"]})


@pytest.mark.parametrize("named", ["../{name}", "{path}", "sub/../../{name}", "link.sqlite"])
def test_a_row_s_file_outside_the_data_s_folder_is_refused_unless_allowed(
    shops: Path, tmp_path: Path, named: str
) -> None:
    data = shops.parent / "data"
    (data / "sub").mkdir(parents=True)
    (data / "link.sqlite").symlink_to(shops)
    name = named.format(name=shops.name, path=shops)
    path = write(data / "own.jsonl", [{"question": "How many?", "query": "SELECT 1", "database": name}])
    with pytest.raises(UsageError, match=r"outside of the data's folder.*other_databases"):
        load(path, None)
    (sample,) = load(path, None, {"other_databases": [str(shops.parent)]})
    assert Nl2SqlTask().reference(sample).location == str(shops)


def test_a_message_of_one_s_own_stays_and_the_system_message_is_an_option(folder: Path) -> None:
    own = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many?"}]
    row = {"prompt": own, "sql": "SELECT COUNT(*) FROM shop", "database": "shops"}
    path = write(folder.parent / "own.jsonl", [row])
    (sample,) = load(path, folder, prompt="prompt", answer="sql")
    assert [message.content for message in sample.messages] == ["Be brief.", "How many?"]
    path = write(folder.parent / "dev.json", [BIRD])
    assert len(load(path, folder, {"system": None})[0].messages) == 1
    assert load(path, folder, {"system": "{dialect}?"})[0].messages[0].content == "SQLite?"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "a.json",
            json.dumps([SPIDER, {**SPIDER, "query": ""}]),
            r"a\.json, row 1 .*: column 'query' is empty",
        ),
        ("a.json", json.dumps([BIRD, {"question": "?", "db_id": "x"}]), r"row 1 \(from 0\): column 'SQL' is empty"),
        ("a.json", json.dumps([SPIDER, 3]), r"a\.json, row 1 \(from 0\) is a JSON int"),
        ("a.json", json.dumps([{"text": "?", "gold": "x"}]), r"no column 'prompt' .* Found: gold, text\."),
        ("a.json", "[]", r"a\.json has no rows"),
        ("a.json", '[{"question": ', r"a\.json cannot be read as a JSON array"),
        ("a.json", "[" * 100_000, r"a\.json cannot be read as a JSON array"),
        ("a.jsonl", json.dumps(SPIDER) + '\n{"question"', r"a\.jsonl"),
        ("a.jsonl", "not JSON", r"a\.jsonl, line 1 is not JSON"),
        ("a.txt", "x", r"a\.txt ends in '\.txt'"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_row(folder: Path, name: str, text: str, says: str) -> None:
    path = folder.parent / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=says):
        load(path, folder)


def test_a_database_that_is_not_there_is_told_with_those_that_are(folder: Path) -> None:
    path = write(folder.parent / "dev.json", [BIRD, {**BIRD, "db_id": "shop"}])
    with pytest.raises(UsageError, match=r"no database 'shop'\. Did you mean 'shops'\?"):
        load(path, folder)
    path = write(folder.parent / "dev.json", [{key: BIRD[key] for key in ("question", "SQL")}])
    with pytest.raises(UsageError, match=r"sample '0'.*--db PATH"):
        load(path, folder)
    with pytest.raises(UsageError, match=r"--db"):
        load(write(folder.parent / "dev.json", [BIRD]), None)


def test_questions_whose_sql_cannot_be_read_are_counted_before_a_run_begins(folder: Path) -> None:
    rows = [
        BIRD,
        {**BIRD, "question_id": 8, "SQL": "SELECT FROM WHERE"},
        {**BIRD, "question_id": 9, "SQL": "DROP TABLE x"},
    ]
    path = write(folder.parent / "dev.json", rows)
    with pytest.raises(
        UsageError, match=r"SQL of 2 of 3 questions .* sample '8'.*SELECT FROM WHERE.*--skip-unreadable"
    ):
        load(path, folder)
    assert [sample.id for sample in load(path, folder, {"skip_unreadable": True})] == ["7"]


def test_databases_are_found_in_the_folders_of_the_public_sets(folder: Path) -> None:
    root = folder.parent
    bird = root / "dev_20240627" / "dev_databases" / "shops"
    bird.mkdir(parents=True)
    shutil.copy(folder / "shops" / "shops.sqlite", bird)
    (bird / "database_description").mkdir()
    assert DatabaseFolder(folder).reference("shops").location == str(folder / "shops" / "shops.sqlite")
    assert DatabaseFolder(bird.parent.parent).reference("shops").location == str(bird / "shops.sqlite")
    with pytest.raises(UsageError, match=r"several databases 'shops'.*--db"):
        DatabaseFolder(root).reference("shops")
    with pytest.raises(UsageError, match=r"holds no databases; expected <id>/<id>\.sqlite"):
        DatabaseFolder(bird / "database_description").reference("shops")
