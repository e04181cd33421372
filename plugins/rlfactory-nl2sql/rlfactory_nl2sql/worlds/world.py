"""One generated world: a database of three tables with rows, and questions about it with their SQL.

The file of a world is made once, in the cache. Evaluation questions are about worlds that are used for nothing else.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from rlfactory_core import Sample
from rlfactory_core.cache import build_once, cache_root, digest
from rlfactory_nl2sql.connection import Row, TableRows
from rlfactory_nl2sql.schema import Column, ForeignKey, Schema, Table
from rlfactory_nl2sql.worlds import names, questions
from rlfactory_nl2sql.worlds.names import CATEGORIES, NAMES, NUMBERS, TIERS, TITLES, VALUES, meaning
from rlfactory_nl2sql.worlds.questions import ROUND, Question, make_questions

FEWEST, MOST = 24, 48  # rows of a table
LOW, HIGH = 10, 100  # numbers, every other one a multiple of ROUND
_NULLABLE = 0.3  # the share of tables in which one column of numbers is sometimes empty
_EMPTY = 0.12  # how often it is
_PEOPLE = tuple("".join(parts).capitalize() for parts in product("bdfklmnrtv", "aeiou", "bdfklmnrtv", "aeiou"))
SOURCES = (names.__file__, questions.__file__, __file__)  # a file that other sources made is not used
_FILE = "world.sqlite"
SPLITS = {"train": (64, 48), "eval": (8, 24)}
"""The number of worlds, and of the questions about each."""


@dataclass(frozen=True, slots=True)
class World:
    """A database and the questions about it."""

    name: str  # its purpose, a hyphen and a number, such as ``train-3``
    schema: Schema
    rows: TableRows  # parents come before children
    questions: tuple[Question, ...] = field(repr=False)  # in random order; the SQL of each gives at least one row

    @classmethod
    def make(cls, seed: int, name: str, questions: int) -> World:
        """The same arguments give the same world."""
        rng = random.Random(f"world {seed} {name}")
        schema, rows = _schema(rng), dict[str, tuple[Row, ...]]()
        for table in schema.tables:
            count = rng.randint(FEWEST, MOST)
            columns = [_values(rng, table, column, count, rows) for column in table.columns]
            rows[table.name] = tuple(zip(*columns, strict=True))
        with closing(cls(name, schema, rows, ()).database(":memory:")) as connection:
            return cls(name, schema, rows, make_questions(rng, schema, rows, connection, questions))

    def database(self, path: str | Path) -> sqlite3.Connection:
        """Make an SQLite database of it."""
        connection = sqlite3.connect(path)
        for table in self.schema.tables:
            places = ", ".join("?" * len(table.columns))
            connection.execute(_definition(table))
            connection.executemany(f"INSERT INTO {table.name} VALUES ({places})", self.rows[table.name])  # noqa: S608 - our own words
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
        columns = [Column(rng.choice(NAMES[word]), "INTEGER", nullable=word == empty) for word in measured]
        columns += [Column(rng.choice(NAMES[word]), "TEXT", nullable=False) for word in (title, categories.pop())]
        keys: tuple[ForeignKey, ...] = ()
        if parent is not None:
            target = tables[parent].name
            columns.append(Column(f"{target}_id", "INTEGER", nullable=False))
            keys = (ForeignKey((f"{target}_id",), target, ("id",)),)
        rng.shuffle(columns)
        columns.insert(0, Column("id", "INTEGER", nullable=False))
        tables.append(Table(rng.choice(NAMES[entity]), tuple(columns), ("id",), keys))
    return Schema(tuple(tables))


def _values(rng: random.Random, table: Table, column: Column, count: int, before: TableRows) -> Sequence[object]:
    """What the rows of a table have in one column; references are to the tables ``before``."""
    word = meaning(column.name)
    if column.name == "id":
        return range(1, count + 1)
    if not word:
        ids = [row[0] for row in before[table.foreign_keys[0].target]]
        return rng.choices(rng.sample(ids, len(ids) * 3 // 4), k=count)  # the others have no children
    if word in TITLES:
        return rng.sample(_PEOPLE, count)
    if word in VALUES:
        values = VALUES[word]
        return rng.choices(values, rng.sample(range(2, 2 + 2 * len(values)), len(values)), k=count)
    numbers = [rng.choice([rng.randrange(LOW, HIGH), rng.randrange(LOW, HIGH, ROUND)]) for _ in range(count)]
    return [None if column.nullable and rng.random() < _EMPTY else number for number in numbers]


def _definition(table: Table) -> str:
    """In SQL for every supported dialect."""
    parts = [f"{one.name} {one.type}{'' if one.nullable else ' NOT NULL'}" for one in table.columns]
    parts += [f"PRIMARY KEY ({', '.join(table.primary_key)})"]
    parts += [f"FOREIGN KEY ({key.columns[0]}) REFERENCES {key.target} (id)" for key in table.foreign_keys]
    return f"CREATE TABLE {table.name} ({', '.join(parts)})"


def world_file(seed: int, name: str) -> Path:
    """The database of the world of these; raises `DataError` if the cache cannot be written to."""
    sources = [Path(source).read_text(encoding="utf-8") for source in SOURCES]
    folder = cache_root() / "nl2sql" / digest([*sources, str(seed), name])
    return build_once(folder, lambda temporary: World.make(seed, name, 0).database(temporary / _FILE).close()) / _FILE


def samples(seed: int, split: str) -> Iterator[Sample]:
    """``train`` or ``eval``. The answer is the gold SQL, ``metadata["database"]`` the world's name."""
    worlds, questions = SPLITS[split]
    for world in (World.make(seed, f"{split}-{number}", questions) for number in range(worlds)):
        for index, one in enumerate(world.questions):
            found = {"database": world.name}
            yield Sample(f"{world.name}/{index}", one.text, answer=one.sql, metadata=found, split=split, slice=one.kind)
