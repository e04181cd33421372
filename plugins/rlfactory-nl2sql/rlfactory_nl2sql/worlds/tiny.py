"""The recipe of the built-in tiny model: its size, and the demonstrations that it learns from before GRPO.

A demonstration has either calls or an answer, so none uses a call to find the answer. That the result of a call helps
with a question is left to GRPO.

The values were found by trial on two cores. With heads of size 64 and slow rotary frequencies the model learns sooner
to find a name in the schema, some hundred tokens away. After both stages it writes two of three queries right if it
sees the schema. Otherwise it guesses the names, and calls a tool in one of four episodes.
"""

# ruff: noqa: S608 - the queries are made of our own words

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlfactory_core import Message
from rlfactory_core.cache import digest
from rlfactory_core.tiny import Demonstration, TinyModelRecipe, WarmStartStage, answer_text, call_text, tools_prompt
from rlfactory_core.types import ToolSpec
from rlfactory_nl2sql import formatting
from rlfactory_nl2sql.formatting import table_line, tables_text
from rlfactory_nl2sql.worlds import world
from rlfactory_nl2sql.worlds.names import MEANING, NAMES, NUMBERS, guess_names, plural
from rlfactory_nl2sql.worlds.questions import FUNCTIONS, Question
from rlfactory_nl2sql.worlds.world import World

SOURCES = (*world.SOURCES, formatting.__file__, __file__)  # other sources: another model
DEMO_WORLDS, DEMO_QUESTIONS = 400, 24  # none of them is trained or evaluated on
ARCHITECTURE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "max_position_embeddings": 2048,
}
SIMPLE = 0.2  # the share of the simplest questions


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """Writes one episode at each call, about one of ``worlds``.

    The shares are those of the kinds of demonstration; the rest shows the schema with the question.
    """

    worlds: Sequence[World]
    order: float = 0.1  # requested calls
    guess: float = 0.0  # a question without the schema, answered with names that are guessed
    fidget: float = 0.0  # a question without the schema, and a useless call

    def __call__(self, rng: random.Random) -> Demonstration:
        world = rng.choice(self.worlds)
        chance = rng.random()
        if chance < self.order:
            return _order(world, rng)
        simple = rng.random() < SIMPLE
        question = _simple_question(world, rng) if simple else rng.choice(world.questions)
        chance -= self.order
        if chance < self.guess:
            return Message("user", question.text), Message("assistant", answer_text(guess_names(question.sql, rng)))
        if chance < self.guess + self.fidget:
            return _fidget(question, rng)
        return _open_book(world, question, rng)


def _fidget(question: Question, rng: random.Random) -> Demonstration:
    """A question and a useless call. The episode ends with the call."""
    table, sql = guess_names(question.tables[0], rng), guess_names(question.sql, rng)
    calls = [("list_tables", {}), ("list_tables", {}), ("describe", {"table": table}), ("run_query", {"sql": sql})]
    return Message("user", question.text), Message("assistant", call_text(*rng.choice(calls)))


def _simple_question(world: World, rng: random.Random) -> Question:
    """The simplest kind: one number about a whole table."""
    table = rng.choice(world.schema.tables)
    column = rng.choice([column for column in table.columns if MEANING.get(column.name) in NUMBERS])
    word, function = rng.choice(sorted(FUNCTIONS.items()))
    text = f"What is the {word} {MEANING[column.name]} of the {plural(MEANING[table.name])}?"
    return Question(text, f"SELECT {function}({column.name}) FROM {table.name}", "aggregate", (table.name,))


def _open_book(world: World, question: Question, rng: random.Random) -> Demonstration:
    """The question and the schema as the tools show it, in one message; then the right answer."""
    listed = tables_text(world.schema)
    described = "\n".join(table_line(table) for table in world.schema.tables if table.name in question.tables)
    text = rng.choice([listed, listed, described, f"{described}\n{listed}"])
    user = f"{question.text}\n<tool_response>\n{text}\n</tool_response>"
    return Message("user", user), Message("assistant", answer_text(question.sql))


def _order(world: World, rng: random.Random) -> Demonstration:
    """An instruction to make a call, and that call."""
    table, sql = rng.choice(world.schema.tables).name, rng.choice(world.questions).sql
    tool, arguments = rng.choice([("list_tables", {}), ("describe", {"table": table}), ("run_query", {"sql": sql})])
    request = " ".join(["Call", tool, *arguments.values()])
    return Message("user", request), Message("assistant", call_text(tool, arguments))


def recipe(seed: int, tools: Sequence[ToolSpec]) -> TinyModelRecipe:
    """The recipe over worlds of ``seed`` for a model that is offered ``tools``."""
    made = [World.make(seed, f"demo-{number}", DEMO_QUESTIONS) for number in range(DEMO_WORLDS)]
    held_out = [World.make(seed, "probe-0", DEMO_QUESTIONS)]
    clean, careless = Demonstrator(made), Demonstrator(made, order=0.05, guess=0.3, fidget=0.12)

    def vocabulary() -> Iterator[str]:
        rng = random.Random("vocabulary")
        # So often that the system prompt becomes few tokens, and every word exactly one.
        yield from [tools_prompt(tools)] * 30
        for demonstrate in (clean, careless):
            for _ in range(400):
                yield "\n".join(message.content for message in demonstrate(rng))
        yield from ["user\nassistant\n"] * 30  # the template's, in every turn
        for name in (name for names in NAMES.values() for name in names):
            yield from [f" {name} {name}_id"] * 12
            yield from [name] * 12

    return TinyModelRecipe(
        architecture=ARCHITECTURE,
        vocabulary=vocabulary,
        vocab_size=1536,
        stages=(
            WarmStartStage(clean, 600, 16, target=0.7),
            WarmStartStage(careless, 600, 16),
        ),
        probe=Demonstrator(held_out),
        lr=6e-3,
        fingerprint=digest([str(seed), *(Path(file).read_text(encoding="utf-8") for file in SOURCES)]),
    )
