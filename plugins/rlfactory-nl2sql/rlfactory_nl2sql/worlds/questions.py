"""Questions about a generated world and their SQL, of six kinds; each kind has a few templates, filled in at random.

The SQL runs in every supported dialect. Constants are taken from the column's own values. Queries without rows, or with
a tie at LIMIT, are left out.
"""

# ruff: noqa: S608 - the queries are made of our own words

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rlfactory_nl2sql.connection import TableRows
from rlfactory_nl2sql.schema import Column, Schema, Table
from rlfactory_nl2sql.worlds.names import CATEGORIES, NUMBERS, TITLES, meaning, plural

ROUND = 10  # constants are multiples of this
_TRIES = 50  # attempts to draw a question before it is left out


@dataclass(frozen=True, slots=True)
class Question:
    """``kind`` is a key of `KINDS`; ``tables`` are those that the SQL reads."""

    text: str
    sql: str
    kind: str
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Sql:
    """A condition or a whole question, in words and in SQL."""

    text: str
    sql: str


@dataclass(frozen=True, slots=True)
class _Subject:
    """A table to ask about."""

    table: Table
    rows: Sequence[tuple[Any, ...]]
    rng: random.Random

    @property
    def one(self) -> str:
        return word_of(self.table)

    @property
    def many(self) -> str:
        return plural(self.one)

    @property
    def title(self) -> Column:
        return next(column for column in self.table.columns if meaning(column.name) in TITLES)

    def number(self) -> Column:
        """A column with a number in every row."""
        return self.rng.choice([c for c in self.table.columns if meaning(c.name) in NUMBERS and not c.nullable])

    def category(self) -> Column:
        return self.rng.choice([c for c in self.table.columns if meaning(c.name) in CATEGORIES])

    def values(self, column: Column) -> list[Any]:
        place = self.table.columns.index(column)
        return sorted(row[place] for row in self.rows if row[place] is not None)

    def condition(self, without: Column | None = None) -> tuple[Column, _Sql]:
        words = (*NUMBERS, *CATEGORIES)
        column = self.rng.choice([c for c in self.table.columns if meaning(c.name) in words and c is not without])
        word, name, values = word_of(column), column.name, self.values(column)
        if word in CATEGORIES:
            value = self.rng.choice(values)
            return column, _Sql(f"the {word} '{value}'", f"{name} = '{value}'")
        if column.nullable and self.rng.random() < 0.3:
            return column, _Sql(f"no {word}", f"{name} IS NULL")
        middle = len(values) // 2
        low, high = (self.rng.choice(_round(part)) for part in (values[2:middle], values[middle:-2]))
        value = self.rng.choice([low, high])
        return column, self.rng.choice(
            [
                _Sql(f"a {word} above {value}", f"{name} > {value}"),
                _Sql(f"a {word} below {value}", f"{name} < {value}"),
                _Sql(f"a {word} of at least {value}", f"{name} >= {value}"),
                _Sql(f"a {word} between {low} and {high}", f"{name} BETWEEN {low} AND {high}"),
            ]
        )

    def conditions(self) -> _Sql:
        """One condition, or two."""
        column, first = self.condition()
        if self.rng.random() < 0.7:
            return first
        _, second = self.condition(without=column)
        word = self.rng.choice(["and", "or"])
        return _Sql(f"{first.text} {word} {second.text}", f"{first.sql} {word.upper()} {second.sql}")


def _filter(it: _Subject) -> _Sql:
    where, source = it.conditions(), it.table.name
    column = it.number()
    word, name = word_of(column), column.name
    category = it.category()
    return it.rng.choice(
        [
            _Sql(
                f"Give the {word_of(it.title)} of each {it.one} with {where.text}.",
                f"SELECT {it.title.name} FROM {source} WHERE {where.sql}",
            ),
            _Sql(
                f"Give the {word_of(it.title)} and {word} of each {it.one} with {where.text}.",
                f"SELECT {it.title.name}, {name} FROM {source} WHERE {where.sql}",
            ),
            _Sql(
                f"Give each different {word_of(category)} of a {it.one} with {where.text}.",
                f"SELECT DISTINCT {category.name} FROM {source} WHERE {where.sql}",
            ),
        ]
    )


def _count(it: _Subject) -> _Sql:
    if it.rng.random() < 0.05:
        return _Sql(f"How many {it.many} are there?", f"SELECT COUNT(*) FROM {it.table.name}")
    where = it.conditions()
    return _Sql(f"How many {it.many} have {where.text}?", f"SELECT COUNT(*) FROM {it.table.name} WHERE {where.sql}")


FUNCTIONS = MappingProxyType({"average": "AVG", "highest": "MAX", "lowest": "MIN", "total": "SUM"})


def _aggregate(it: _Subject) -> _Sql:
    column = it.number()
    _, where = it.condition(without=column)
    word, function = it.rng.choice(sorted(FUNCTIONS.items()))
    return _Sql(
        f"What is the {word} {word_of(column)} of the {it.many} with {where.text}?",
        f"SELECT {function}({column.name}) FROM {it.table.name} WHERE {where.sql}",
    )


def _order(it: _Subject) -> _Sql:
    column = it.number()
    word, name, source = word_of(column), column.name, it.table.name
    end, direction, way = it.rng.choice([("highest", " DESC", "falling"), ("lowest", "", "rising")])
    _, where = it.condition(without=column)
    most = it.rng.randint(2, 5)
    return it.rng.choice(
        [
            _Sql(
                f"Give the {word_of(it.title)} of the {it.one} with the {end} {word}.",
                f"SELECT {it.title.name} FROM {source} ORDER BY {name}{direction} LIMIT 1",
            ),
            _Sql(
                f"Give the {word_of(it.title)} of the {most} {it.many} with the {end} {word}, {end} first.",
                f"SELECT {it.title.name} FROM {source} ORDER BY {name}{direction} LIMIT {most}",
            ),
            _Sql(
                f"Give the {word_of(it.title)} of each {it.one} with {where.text}, by {way} {word}.",
                f"SELECT {it.title.name} FROM {source} WHERE {where.sql} ORDER BY {name}{direction}",
            ),
        ]
    )


def _group(it: _Subject) -> _Sql:
    category, column, source = it.category(), it.number(), it.table.name
    kind, word = word_of(category), word_of(column)
    _, where = it.condition(without=category)
    most = it.rng.randint(3, 8)
    return it.rng.choice(
        [
            _Sql(
                f"How many {it.many} are there of each {kind}?",
                f"SELECT {category.name}, COUNT(*) FROM {source} GROUP BY {category.name}",
            ),
            _Sql(
                f"How many {it.many} with {where.text} are there of each {kind}?",
                f"SELECT {category.name}, COUNT(*) FROM {source} WHERE {where.sql} GROUP BY {category.name}",
            ),
            _Sql(
                f"What is the average {word} of the {it.many} of each {kind}?",
                f"SELECT {category.name}, AVG({column.name}) FROM {source} GROUP BY {category.name}",
            ),
            _Sql(
                f"Give each {kind} with more than {most} {it.many}.",
                f"SELECT {category.name} FROM {source} GROUP BY {category.name} HAVING COUNT(*) > {most}",
            ),
        ]
    )


def _join(it: _Subject, parent: _Subject) -> _Sql:
    key = it.table.foreign_keys[0].columns[0]
    both = f"{it.table.name} JOIN {parent.table.name} ON {key} = {parent.table.name}.id"
    _, where = parent.condition()
    return it.rng.choice(
        [
            _Sql(
                f"Give the {word_of(it.title)} of each {it.one} in a {parent.one} with {where.text}.",
                f"SELECT {it.title.name} FROM {both} WHERE {where.sql}",
            ),
            _Sql(
                f"How many {it.many} are in a {parent.one} with {where.text}?",
                f"SELECT COUNT(*) FROM {both} WHERE {where.sql}",
            ),
            _Sql(
                f"Give the {word_of(it.title)} of each {it.one} and the {word_of(parent.title)} of its {parent.one}, "
                f"if that has {where.text}.",
                f"SELECT {it.title.name}, {parent.title.name} FROM {both} WHERE {where.sql}",
            ),
        ]
    )


_OF_ONE: MappingProxyType[str, Callable[[_Subject], _Sql]] = MappingProxyType(
    {"filter": _filter, "count": _count, "aggregate": _aggregate, "order": _order, "group": _group}
)
KINDS = (*_OF_ONE, "join")


def make_questions(
    rng: random.Random, schema: Schema, rows: TableRows, connection: sqlite3.Connection, number: int
) -> tuple[Question, ...]:
    """``number`` different questions, equally many of each kind.

    Args:
        connection: to a database of the world, to run the queries.
    """
    made: dict[str, Question] = {}
    kinds = [KINDS[place % len(KINDS)] for place in range(number)]
    for kind in rng.sample(kinds, len(kinds)):
        for _ in range(_TRIES):
            question = _question(rng, schema, rows, kind)
            if question.text not in made and _asks_for_something(question.sql, connection):
                made[question.text] = question
                break
    return tuple(made.values())


def _question(rng: random.Random, schema: Schema, rows: TableRows, kind: str) -> Question:
    if kind == "join":
        child = rng.choice([table for table in schema.tables if table.foreign_keys])
        parent = schema.table(child.foreign_keys[0].target)
        assert parent is not None
        asked = _join(_Subject(child, rows[child.name], rng), _Subject(parent, rows[parent.name], rng))
        return Question(asked.text, asked.sql, kind, (child.name, parent.name))
    table = rng.choice(schema.tables)
    asked = _OF_ONE[kind](_Subject(table, rows[table.name], rng))
    return Question(asked.text, asked.sql, kind, (table.name,))


def _asks_for_something(sql: str, connection: sqlite3.Connection) -> bool:
    """Whether its answer is not NULL or 0, and has no tie at its LIMIT."""
    found = connection.execute(sql).fetchall()
    if not found or found in ([(None,)], [(0,)]):
        return False
    before, limit, most = sql.rpartition(" LIMIT ")
    if not limit:
        return True
    head, _, key = before.rpartition(" ORDER BY ")
    column = key.split()[0]
    ordered = connection.execute(f"SELECT {column} FROM {head.partition(' FROM ')[2]} ORDER BY {key}").fetchall()
    edge = ordered[: int(most) + 1]
    return len(set(edge)) == len(edge)


def _round(values: Sequence[int]) -> Sequence[int]:
    return [value for value in values if value % ROUND == 0] or values


def word_of(thing: Table | Column) -> str:
    """The question's word for a table or for a column that is not a key."""
    word = meaning(thing.name)
    if word is None:
        raise ValueError(f"{thing.name} is not a name of generated databases")
    return word
