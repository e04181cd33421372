"""Demonstrations for the warm start: correct SQL with the schema given, calls on request, and careless guesses.

A demonstration has either calls or an answer, so none uses a call to find the answer. That the result of a call helps
with a question is left to GRPO.
"""

# ruff: noqa: S608 - the queries are made of our own words

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rlfactory_core import Message
from rlfactory_core.tiny import Demonstration, answer_text, call_text
from rlfactory_nl2sql.formatting import table_line, tables_text
from rlfactory_nl2sql.worlds.names import NUMBERS, guess_names, meaning, plural
from rlfactory_nl2sql.worlds.questions import FUNCTIONS, Question, word_of
from rlfactory_nl2sql.worlds.world import World

SIMPLE = 0.2  # the share of the simplest questions


@dataclass(frozen=True, slots=True)
class Shares:
    """The share of each kind of demonstration; the rest shows the schema with the question."""

    order: float = 0.0  # requested calls
    guess: float = 0.0  # a question without the schema, answered with names that are guessed
    fidget: float = 0.0  # a question without the schema, and a useless call


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """Writes one episode at each call, about one of ``worlds``."""

    worlds: Sequence[World]
    shares: Shares

    def __call__(self, rng: random.Random) -> Demonstration:
        world = rng.choice(self.worlds)
        chance = rng.random()
        if chance < self.shares.order:
            return order(world, rng)
        simple = rng.random() < SIMPLE
        question = simple_question(world, rng) if simple else rng.choice(world.questions)
        chance -= self.shares.order
        if chance < self.shares.guess:
            return Message("user", question.text), Message("assistant", answer_text(guess_names(question.sql, rng)))
        if chance < self.shares.guess + self.shares.fidget:
            return fidget(question, rng)
        return open_book(world, question, rng)


def fidget(question: Question, rng: random.Random) -> Demonstration:
    """A question and a useless call. The episode ends with the call."""
    table, sql = guess_names(question.tables[0], rng), guess_names(question.sql, rng)
    calls = [("list_tables", {}), ("list_tables", {}), ("describe", {"table": table}), ("run_query", {"sql": sql})]
    return Message("user", question.text), Message("assistant", call_text(*rng.choice(calls)))


def simple_question(world: World, rng: random.Random) -> Question:
    """The simplest kind: one number about a whole table."""
    table = rng.choice(world.schema.tables)
    column = rng.choice([column for column in table.columns if meaning(column.name) in NUMBERS])
    word, function = rng.choice(sorted(FUNCTIONS.items()))
    text = f"What is the {word} {word_of(column)} of the {plural(word_of(table))}?"
    return Question(text, f"SELECT {function}({column.name}) FROM {table.name}", "aggregate", (table.name,))


def open_book(world: World, question: Question, rng: random.Random) -> Demonstration:
    """The question and the schema as the tools show it, in one message; then the right answer."""
    listed = tables_text(world.schema)
    described = "\n".join(table_line(table) for table in world.schema.tables if table.name in question.tables)
    text = rng.choice([listed, listed, described, f"{described}\n{listed}"])
    user = f"{question.text}\n<tool_response>\n{text}\n</tool_response>"
    return Message("user", user), Message("assistant", answer_text(question.sql))


def order(world: World, rng: random.Random) -> Demonstration:
    """An instruction to make a call, and that call."""
    table, sql = rng.choice(world.schema.tables).name, rng.choice(world.questions).sql
    tool, arguments = rng.choice([("list_tables", {}), ("describe", {"table": table}), ("run_query", {"sql": sql})])
    request = " ".join(["Call", tool, *arguments.values()])
    return Message("user", request), Message("assistant", call_text(tool, arguments))
