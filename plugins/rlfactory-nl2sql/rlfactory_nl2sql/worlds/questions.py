"""Questions about a generated world and their SQL, of six kinds; each kind has a few templates, filled in at random.

The SQL runs in every supported dialect. Constants are taken from the column's own values. Queries without rows, or with
a tie at LIMIT, are left out.
"""

# ruff: noqa: S608 - the queries are made of our own words

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, NamedTuple

from rlfactory_nl2sql.connection import TableRows
from rlfactory_nl2sql.schema import Column, Schema, Table
from rlfactory_nl2sql.worlds.names import CATEGORIES, MEANING, NUMBERS, TITLES, Names, plural

ROUND = 10  # constants are multiples of this
FUNCTIONS = {"average": "AVG", "highest": "MAX", "lowest": "MIN", "total": "SUM"}
_TRIES = 50  # attempts to draw a question before it is left out


class Phrase(NamedTuple):
    """A thing, a condition or a whole question, in words and in SQL."""

    text: str
    sql: str


_ENDS = [(Phrase("highest", " DESC"), "falling"), (Phrase("lowest", ""), "rising")]
_TEMPLATES = {
    "filter": """
        Give the {title} of each {one} with {where}.
        SELECT {title} FROM {one} WHERE {where}
        Give the {title} and {number} of each {one} with {where}.
        SELECT {title}, {number} FROM {one} WHERE {where}
        Give each different {category} of a {one} with {where}.
        SELECT DISTINCT {category} FROM {one} WHERE {where}""",
    "count": """
        How many {many} have {where}?
        SELECT COUNT(*) FROM {one} WHERE {where}""",
    "aggregate": """
        What is the {function} {number} of the {many} with {where}?
        SELECT {function}({number}) FROM {one} WHERE {where}""",
    "order": """
        Give the {title} of the {one} with the {end} {number}.
        SELECT {title} FROM {one} ORDER BY {number}{end} LIMIT 1
        Give the {title} of the {most} {many} with the {end} {number}, {end} first.
        SELECT {title} FROM {one} ORDER BY {number}{end} LIMIT {most}
        Give the {title} of each {one} with {where}, by {way} {number}.
        SELECT {title} FROM {one} WHERE {where} ORDER BY {number}{end}""",
    "group": """
        How many {many} are there of each {category}?
        SELECT {category}, COUNT(*) FROM {one} GROUP BY {category}
        How many {many} with {where} are there of each {category}?
        SELECT {category}, COUNT(*) FROM {one} WHERE {where} GROUP BY {category}
        What is the average {number} of the {many} of each {category}?
        SELECT {category}, AVG({number}) FROM {one} GROUP BY {category}
        Give each {category} with more than {most} {many}.
        SELECT {category} FROM {one} GROUP BY {category} HAVING COUNT(*) > {most}""",
    "join": """
        Give the {title} of each {one} in a {parent} with {where}.
        SELECT {title} FROM {joined} WHERE {where}
        How many {many} are in a {parent} with {where}?
        SELECT COUNT(*) FROM {joined} WHERE {where}
        Give the {title} of each {one} and the {parent_title} of its {parent}, if that has {where}.
        SELECT {title}, {parent_title} FROM {joined} WHERE {where}""",
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


@dataclass(frozen=True, slots=True)
class _Subject:
    """A table to ask about."""

    table: Table
    rows: Sequence[tuple[Any, ...]]
    rng: random.Random

    def fields(self) -> dict[str, Phrase]:
        title = _phrase(next(column for column in self.table.columns if MEANING.get(column.name) in TITLES))
        return {"one": _phrase(self.table), "many": Phrase(plural(MEANING[self.table.name]), ""), "title": title}

    def column(self, *words: Names, without: str = "", filled: bool = False) -> Column:
        """One that means one of these words; ``filled``: with a value in every row."""
        means = [column for column in self.table.columns if any(MEANING.get(column.name) in each for each in words)]
        return self.rng.choice([c for c in means if c.name != without and not (filled and c.nullable)])

    def number(self) -> Phrase:
        return _phrase(self.column(NUMBERS, filled=True))

    def category(self) -> Phrase:
        return _phrase(self.column(CATEGORIES))

    def condition(self, without: str = "") -> Phrase:
        """A condition on another column than ``without``."""
        column = self.column(NUMBERS, CATEGORIES, without=without)
        word, name, place = MEANING[column.name], column.name, self.table.columns.index(column)
        values = sorted(row[place] for row in self.rows if row[place] is not None)
        if word in CATEGORIES:
            value = self.rng.choice(values)
            return Phrase(f"the {word} '{value}'", f"{name} = '{value}'")
        if column.nullable and self.rng.random() < 0.3:
            return Phrase(f"no {word}", f"{name} IS NULL")
        middle = len(values) // 2
        low, high = (self.rng.choice(_round(part)) for part in (values[2:middle], values[middle:-2]))
        value = self.rng.choice([low, high])
        return self.rng.choice(
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
        if self.rng.random() < 0.7:
            return first
        second = self.condition(without=first.sql.split()[0])
        word = self.rng.choice(["and", "or"])
        return Phrase(f"{first.text} {word} {second.text}", f"{first.sql} {word.upper()} {second.sql}")


def _ask(kind: str, it: _Subject, parent: _Subject | None) -> Phrase:
    """A question about a table, and for a join about its parent."""
    rng, fields, lines = it.rng, it.fields(), cleandoc(_TEMPLATES[kind]).splitlines()
    if kind == "filter":
        fields |= {"where": it.conditions(), "number": it.number(), "category": it.category()}
    elif kind == "count":
        if rng.random() < 0.05:
            return Phrase(f"How many {fields['many'].text} are there?", f"SELECT COUNT(*) FROM {it.table.name}")
        fields["where"] = it.conditions()
    elif kind == "aggregate":
        number = it.number()
        fields |= {"number": number, "where": it.condition(number.sql)}
        fields["function"] = Phrase(*rng.choice(sorted(FUNCTIONS.items())))
    elif kind == "order":
        number = it.number()
        end, way = rng.choice(_ENDS)
        fields |= {"number": number, "end": end, "way": Phrase(way, ""), "where": it.condition(number.sql)}
        fields["most"] = _number(rng.randint(2, 5))
    elif kind == "group":
        category, number = it.category(), it.number()
        fields |= {"category": category, "number": number, "where": it.condition(category.sql)}
        fields["most"] = _number(rng.randint(3, 8))
    elif parent is not None:
        of_parent = parent.fields()
        fields |= {"parent": of_parent["one"], "parent_title": of_parent["title"], "where": parent.condition()}
        child, name = it.table, parent.table.name
        fields["joined"] = Phrase("", f"{child.name} JOIN {name} ON {child.foreign_keys[0].columns[0]} = {name}.id")
    templates = list(zip(lines[::2], lines[1::2], strict=True))
    text, sql = rng.choice(templates) if len(templates) > 1 else templates[0]
    words, code = ({name: phrase[part] for name, phrase in fields.items()} for part in (0, 1))
    return Phrase(text.format_map(words), sql.format_map(code))


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
    joins = kind == "join"
    table = rng.choice([table for table in schema.tables if table.foreign_keys or not joins])
    parent = schema.table(table.foreign_keys[0].target) if joins else None
    subject = _Subject(table, rows[table.name], rng)
    asked = _ask(kind, subject, _Subject(parent, rows[parent.name], rng) if parent else None)
    return Question(*asked, kind, (table.name, parent.name) if parent else (table.name,))


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


def _phrase(thing: Table | Column) -> Phrase:
    return Phrase(MEANING[thing.name], thing.name)


def _number(number: int) -> Phrase:
    return Phrase(str(number), str(number))
