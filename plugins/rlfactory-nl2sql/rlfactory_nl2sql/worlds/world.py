"""One generated world: a database of three tables with rows, and questions about it with their SQL.

The file of a world is made once, in the cache. Evaluation questions are about worlds that are used for nothing else.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from rlfactory_core import Sample
from rlfactory_core.cache import build_once, cache_root, digest
from rlfactory_nl2sql.connection import Row, TableRows
from rlfactory_nl2sql.schema import Column, ForeignKey, Schema, Table
from rlfactory_nl2sql.worlds import names, questions
from rlfactory_nl2sql.worlds.names import CATEGORIES, MEANING, NAMES, NUMBERS, TIERS, TITLES, VALUES
from rlfactory_nl2sql.worlds.questions import ROUND, Question, make_questions

QUESTIONS = 180
FEWEST, MOST = 24, 48  # rows of a table
LOW, HIGH = 10, 100  # numbers, every other one a multiple of ROUND
_NULLABLE = 0.3  # the share of tables in which one column of numbers is sometimes empty
_EMPTY = 0.12  # how often it is

_SYLLABLES = tuple(a + b for a in ("b", "d", "f", "k", "l", "m", "n", "r", "t", "v") for b in ("a", "e", "i", "o", "u"))
SOURCES = (names.__file__, questions.__file__, __file__)  # a file that other sources made is not used
_FILE = "world.sqlite"
TRAIN_WORLDS, TRAIN_QUESTIONS = 64, 48
EVAL_WORLDS, EVAL_QUESTIONS = 8, 24


@dataclass(frozen=True, slots=True)
class World:
    """A database and the questions about it."""

    name: str  # its purpose, a hyphen and a number, such as ``train-3``
    schema: Schema
    rows: TableRows  # parents come before children
    questions: tuple[Question, ...] = field(repr=False)  # in random order; the SQL of each gives at least one row

    @classmethod
    def make(cls, seed: int, name: str, questions: int = QUESTIONS) -> World:
        """The same arguments give the same world."""
        rng = random.Random(f"world {seed} {name}")
        schema = _schema(rng)
        rows: dict[str, tuple[Row, ...]] = {}
        for table in schema.tables:
            rows[table.name] = tuple(_rows(rng, table, rows))
        with closing(cls(name, schema, rows, ()).database(":memory:")) as connection:
            return cls(name, schema, rows, make_questions(rng, schema, rows, connection, questions))

    def database(self, path: str | Path) -> sqlite3.Connection:
        """Make an SQLite database of it."""
        connection = sqlite3.connect(path)
        connection.executescript(";".join(map(_definition, self.schema.tables)))
        for table, rows in self.rows.items():
            places = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 - our own words
        connection.commit()
        return connection


def _schema(rng: random.Random) -> Schema:
    """Tables of places, of buildings in them, and of things in either. No two columns mean the same."""
    entities = [rng.choice(sorted(tier)) for tier in TIERS]
    parents = (None, 0, rng.choice([0, 1]))
    numbers = rng.sample(sorted(NUMBERS), len(NUMBERS))
    categories = rng.sample(sorted(CATEGORIES), len(CATEGORIES))
    tables: list[Table] = []
    for entity, title, parent in zip(entities, TITLES, parents, strict=True):
        measured = [numbers.pop(), numbers.pop()]
        empty = measured[0] if rng.random() < _NULLABLE else None
        columns = [Column(rng.choice(NAMES[title]), "TEXT", nullable=False)]
        columns += [Column(rng.choice(NAMES[word]), "INTEGER", nullable=word == empty) for word in measured]
        columns.append(Column(rng.choice(NAMES[categories.pop()]), "TEXT", nullable=False))
        keys: tuple[ForeignKey, ...] = ()
        if parent is not None:
            target = tables[parent].name
            columns.append(Column(f"{target}_id", "INTEGER", nullable=False))
            keys = (ForeignKey((f"{target}_id",), target, ("id",)),)
        rng.shuffle(columns)
        columns.insert(0, Column("id", "INTEGER", nullable=False))
        tables.append(Table(rng.choice(NAMES[entity]), tuple(columns), ("id",), keys))
    return Schema(tuple(tables))


def _rows(rng: random.Random, table: Table, before: TableRows) -> Iterator[Row]:
    count = rng.randint(FEWEST, MOST)
    columns = [_values(rng, table, column, count, before) for column in table.columns]
    yield from zip(*columns, strict=True)


def _values(rng: random.Random, table: Table, column: Column, count: int, before: TableRows) -> Sequence[object]:
    if column.name == "id":
        return range(1, count + 1)
    for key in table.foreign_keys:
        if key.columns == (column.name,):
            ids = [row[0] for row in before[key.target]]
            parents = rng.sample(ids, max(1, len(ids) * 3 // 4))  # the others have no children
            return [rng.choice(parents) for _ in range(count)]
    word = MEANING[column.name]
    if word in TITLES:
        return _people(rng, count)
    if word in VALUES:
        values = VALUES[word]
        weights = rng.sample(range(2, 2 + 2 * len(values)), len(values))
        return rng.choices(values, weights, k=count)
    numbers = [rng.choice([rng.randrange(LOW, HIGH), rng.randrange(LOW, HIGH, ROUND)]) for _ in range(count)]
    return [None if column.nullable and rng.random() < _EMPTY else number for number in numbers]


def _people(rng: random.Random, count: int) -> list[str]:
    """Made-up proper names, no two alike."""
    made: set[str] = set()
    while len(made) < count:
        made.add("".join(rng.choices(_SYLLABLES, k=3)).capitalize())
    return rng.sample(sorted(made), count)


def _definition(table: Table) -> str:
    parts = [
        f"{column.name} {column.type}"
        + (" PRIMARY KEY" if (column.name,) == table.primary_key else "" if column.nullable else " NOT NULL")
        for column in table.columns
    ]
    parts += [
        f"FOREIGN KEY ({', '.join(key.columns)}) REFERENCES {key.target} ({', '.join(key.target_columns)})"
        for key in table.foreign_keys
    ]
    return f"CREATE TABLE {table.name} ({', '.join(parts)})"


def world_file(seed: int, name: str) -> Path:
    """The database of ``World.make(seed, name)``; raises `DataError` if the cache cannot be written to."""
    sources = [Path(source).read_text(encoding="utf-8") for source in SOURCES]
    folder = cache_root() / "nl2sql" / digest([*sources, str(seed), name])
    return build_once(folder, lambda temporary: World.make(seed, name, 0).database(temporary / _FILE).close()) / _FILE


def samples(seed: int, split: str) -> Iterator[Sample]:
    """``train`` or ``eval``. The answer is the gold SQL, ``metadata["database"]`` the world's name."""
    worlds, questions = (EVAL_WORLDS, EVAL_QUESTIONS) if split == "eval" else (TRAIN_WORLDS, TRAIN_QUESTIONS)
    for number in range(worlds):
        world = World.make(seed, f"{split}-{number}", questions)
        for index, question in enumerate(world.questions):
            yield Sample(
                id=f"{world.name}/{index}",
                prompt=question.text,
                answer=question.sql,
                metadata={"database": world.name},
                split=split,
                slice=question.kind,
            )
