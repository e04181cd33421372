"""Questions about a generated world and their SQL, of six kinds; each kind has a few templates, filled in at random.

The SQL runs in every supported dialect. Constants are near the column's own values. Queries without rows are left out.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, NamedTuple

from rlfactory_nl2sql.connection import TableRows
from rlfactory_nl2sql.schema import Column, Schema, Table
from rlfactory_nl2sql.worlds.names import CATEGORIES, NUMBERS, TITLES, Names, meaning, plural

ROUND = 10  # constants are multiples of this
_TRIES = 50  # attempts to draw a question before it is left out


class Phrase(NamedTuple):
    """A thing, a condition or a whole question, in words and in SQL."""

    text: str
    sql: str


FUNCTIONS = (Phrase("average", "AVG"), Phrase("highest", "MAX"), Phrase("lowest", "MIN"), Phrase("total", "SUM"))
_ENDS = (Phrase("highest", " DESC"), Phrase("lowest", ""))
_WAYS = (Phrase("falling", " DESC"), Phrase("rising", ""))
_TEMPLATES = {
    "filter": """
        Give the {title} of each {one} with {conditions}.
        SELECT {title} FROM {one} WHERE {conditions}
        Give the {title} and {number} of each {one} with {conditions}.
        SELECT {title}, {number} FROM {one} WHERE {conditions}
        Give each different {category} of a {one} with {condition}.
        SELECT DISTINCT {category} FROM {one} WHERE {condition}""",
    "count": """
        How many {many} have {conditions}?
        SELECT COUNT(*) FROM {one} WHERE {conditions}""",
    "aggregate": """
        What is the {function} {number} of the {many} with {condition}?
        SELECT {function}({number}) FROM {one} WHERE {condition}""",
    "order": """
        Give the {title} of the {one} with the {end} {number}.
        SELECT {title} FROM {one} ORDER BY {number}{end} LIMIT 1
        Give the {title} of the {few} {many} with the {end} {number}, {end} first.
        SELECT {title} FROM {one} ORDER BY {number}{end} LIMIT {few}
        Give the {title} of each {one} with {condition}, by {way} {number}.
        SELECT {title} FROM {one} WHERE {condition} ORDER BY {number}{way}""",
    "group": """
        How many {many} are there of each {category}?
        SELECT {category}, COUNT(*) FROM {one} GROUP BY {category}
        How many {many} with {condition} are there of each {category}?
        SELECT {category}, COUNT(*) FROM {one} WHERE {condition} GROUP BY {category}
        What is the average {number} of the {many} of each {category}?
        SELECT {category}, AVG({number}) FROM {one} GROUP BY {category}
        Give each {category} with more than {some} {many}.
        SELECT {category} FROM {one} GROUP BY {category} HAVING COUNT(*) > {some}""",
    "join": """
        Give the {title} of each {one} in a {parent} with {of_parent}.
        SELECT {title} FROM {joined} WHERE {of_parent}
        How many {many} are in a {parent} with {of_parent}?
        SELECT COUNT(*) FROM {joined} WHERE {of_parent}
        Give the {title} of each {one} and the {parent_title} of its {parent}, if that has {of_parent}.
        SELECT {title}, {parent_title} FROM {joined} WHERE {of_parent}""",
}
"""By kind, alternately a question and its SQL. A field becomes words in the one, and SQL in the other."""
KINDS = tuple(_TEMPLATES)


@dataclass(frozen=True, slots=True)
class Question:
    """``kind`` is one of `KINDS`; ``tables`` are those that the SQL reads."""

    text: str
    sql: str
    kind: str
    tables: tuple[str, ...]


class _Subject:
    """A table to ask about, which draws each of its columns for one field of a question only."""

    def __init__(self, table: Table, rows: TableRows, rng: random.Random) -> None:
        self.table, self._rng, self._left = table, rng, list(table.columns)
        self._values = dict(zip(table.columns, zip(*rows[table.name], strict=True), strict=True))

    @property
    def one(self) -> Phrase:
        return _phrase(self.table)

    def column(self, words: Names, *, filled: bool = False) -> Phrase:
        """One that means one of these words; ``filled``: with a value in every row."""
        return _phrase(self._draw(words, filled=filled))

    def condition(self) -> Phrase:
        """A condition on one column."""
        column = self._draw({**NUMBERS, **CATEGORIES})
        word, name = _phrase(column)
        values: list[Any] = sorted(value for value in self._values[column] if value is not None)
        if word in CATEGORIES:
            value = self._rng.choice(values)
            return Phrase(f"the {word} '{value}'", f"{name} = '{value}'")
        if column.nullable and self._rng.random() < 0.3:
            return Phrase(f"no {word}", f"{name} IS NULL")
        middle = len(values) // 2
        parts = (
            [value for value in part if value % ROUND == 0] or part for part in (values[2:middle], values[middle:-2])
        )
        low, high = map(self._rng.choice, parts)
        value = self._rng.choice([low, high])
        return self._rng.choice(
            [
                Phrase(f"a {word} above {value}", f"{name} > {value}"),
                Phrase(f"a {word} below {value}", f"{name} < {value}"),
                Phrase(f"a {word} of at least {value}", f"{name} >= {value}"),
                Phrase(f"a {word} between {low} and {high}", f"{name} BETWEEN {low} AND {high}"),
            ]
        )

    def conditions(self) -> Phrase:
        """One condition, or two on different columns."""
        first = self.condition()
        if self._rng.random() < 0.7:
            return first
        second, word = self.condition(), self._rng.choice(["and", "or"])
        return Phrase(f"{first.text} {word} {second.text}", f"{first.sql} {word.upper()} {second.sql}")

    def _draw(self, words: Names, *, filled: bool = False) -> Column:
        able = [one for one in self._left if meaning(one.name) in words and not (filled and one.nullable)]
        column = self._rng.choice(able)
        self._left.remove(column)
        return column


def _fields(it: _Subject, parent: _Subject, rng: random.Random) -> Mapping[str, Callable[[], Phrase]]:
    """What the templates may ask for. Conditions are drawn last, since they may be on any column that is left."""
    name, of_parent = it.table.name, parent.table.name
    key = it.table.foreign_keys[0].columns[0] if it.table.foreign_keys else ""
    return {
        "one": lambda: it.one,
        "many": lambda: Phrase(plural(it.one.text), name),
        "title": lambda: it.column(TITLES),
        "number": lambda: it.column(NUMBERS, filled=True),
        "category": lambda: it.column(CATEGORIES),
        "function": lambda: rng.choice(FUNCTIONS),
        "end": lambda: rng.choice(_ENDS),
        "way": lambda: rng.choice(_WAYS),
        "few": lambda: Phrase(*[str(rng.randint(2, 5))] * 2),
        "some": lambda: Phrase(*[str(rng.randint(3, 8))] * 2),
        "parent": lambda: parent.one,
        "parent_title": lambda: parent.column(TITLES),
        "joined": lambda: Phrase("", f"{name} JOIN {of_parent} ON {key} = {of_parent}.id"),
        "condition": it.condition,
        "conditions": it.conditions,
        "of_parent": parent.condition,
    }


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
            empty = connection.execute(question.sql).fetchall() in ([], [(None,)], [(0,)])
            if question.text not in made and not empty:
                made[question.text] = question
                break
    return tuple(made.values())


def _question(rng: random.Random, schema: Schema, rows: TableRows, kind: str) -> Question:
    joins = kind == "join"
    table = rng.choice([table for table in schema.tables if table.foreign_keys or not joins])
    parent = (schema.table(table.foreign_keys[0].target) if joins else None) or table
    lines = cleandoc(_TEMPLATES[kind]).splitlines()
    text, sql = rng.choice(list(zip(lines[::2], lines[1::2], strict=True)))
    fields = _fields(_Subject(table, rows, rng), _Subject(parent, rows, rng), rng)
    drawn = {name: draw() for name, draw in fields.items() if f"{{{name}}}" in text + sql}
    words, code = ({name: phrase[part] for name, phrase in drawn.items()} for part in (0, 1))
    tables = tuple(dict.fromkeys((table.name, parent.name)))
    return Question(text.format_map(words), sql.format_map(code), kind, tables)


def _phrase(thing: Table | Column) -> Phrase:
    return Phrase(meaning(thing.name), thing.name)
