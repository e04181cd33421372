"""The recipe of the built-in tiny model: its size, and the demonstrations that it learns from before GRPO.

A demonstration has either calls or an answer, so none uses a call to find the answer. That the result of a call helps
with a question is left to GRPO.

The values were found by trial on two cores. With heads of size 64 and slow rotary frequencies the model learns sooner
to find a name in the schema, some hundred tokens away. After both stages it writes two of three queries right if it
sees the schema. Otherwise it guesses the names, and calls a tool in one of four episodes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlfactory_core import Message
from rlfactory_core.cache import digest
from rlfactory_core.tiny import Demonstration, TinyModelRecipe, WarmStartStage, answer_text, call_text, tools_prompt
from rlfactory_core.types import ToolSpec
from rlfactory_nl2sql import formatting
from rlfactory_nl2sql.formatting import table_line, tables_text
from rlfactory_nl2sql.worlds import world
from rlfactory_nl2sql.worlds.names import NAMES, NUMBERS, guess_names, meaning, plural
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
Shares = Mapping[Callable[[World, Question, random.Random], Demonstration], float]
"""Of each kind of demonstration."""
_SIMPLE = 0.2  # the share of the simplest questions


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """Writes one episode at each call, about one of ``worlds``."""

    worlds: Sequence[World]
    shares: Shares

    def __call__(self, rng: random.Random) -> Demonstration:
        world = rng.choice(self.worlds)
        (demonstrate,) = rng.choices(list(self.shares), list(self.shares.values()))
        simple = rng.random() < _SIMPLE
        return demonstrate(world, _simple_question(world, rng) if simple else rng.choice(world.questions), rng)


def _simple_question(world: World, rng: random.Random) -> Question:
    """The simplest kind: one number about a whole table."""
    table = rng.choice(world.schema.tables)
    column = rng.choice([column.name for column in table.columns if meaning(column.name) in NUMBERS])
    word, function = rng.choice(FUNCTIONS)
    text = f"What is the {word} {meaning(column)} of the {plural(meaning(table.name))}?"
    return Question(text, f"SELECT {function}({column}) FROM {table.name}", "aggregate", (table.name,))  # noqa: S608 - our own words


def _open_book(world: World, question: Question, rng: random.Random) -> Demonstration:
    """The question and the schema as the tools show it, in one message; then the right answer."""
    listed = tables_text(world.schema)
    described = "\n".join(table_line(table) for table in world.schema.tables if table.name in question.tables)
    text = rng.choice([listed, listed, described, f"{described}\n{listed}"])
    user = f"{question.text}\n<tool_response>\n{text}\n</tool_response>"
    return Message("user", user), Message("assistant", answer_text(question.sql))


def _guess(_world: World, question: Question, rng: random.Random) -> Demonstration:
    """A question without the schema, answered with guessed names."""
    return Message("user", question.text), Message("assistant", answer_text(guess_names(question.sql, rng)))


def _fidget(_world: World, question: Question, rng: random.Random) -> Demonstration:
    """A question without the schema, and a useless call, with which the episode ends."""
    tool, arguments = _call(guess_names(question.tables[0], rng), guess_names(question.sql, rng), rng)
    return Message("user", question.text), Message("assistant", call_text(tool, arguments))


def _order(world: World, question: Question, rng: random.Random) -> Demonstration:
    """An instruction to make a call, and that call."""
    tool, arguments = _call(rng.choice(world.schema.tables).name, question.sql, rng)
    request = " ".join(["Call", tool, *arguments.values()])
    return Message("user", request), Message("assistant", call_text(tool, arguments))


def _call(table: str, sql: str, rng: random.Random) -> tuple[str, dict[str, str]]:
    return rng.choice([*[("list_tables", {})] * 2, ("describe", {"table": table}), ("run_query", {"sql": sql})])


CLEAN: Shares = {_open_book: 0.9, _order: 0.1}
CARELESS: Shares = {_open_book: 0.53, _order: 0.05, _guess: 0.3, _fidget: 0.12}


def recipe(seed: int, tools: Sequence[ToolSpec]) -> TinyModelRecipe:
    """The recipe over worlds of ``seed`` for a model that is offered ``tools``."""
    made = [World.make(seed, f"demo-{number}", DEMO_QUESTIONS) for number in range(DEMO_WORLDS)]
    held_out = [World.make(seed, "probe-0", DEMO_QUESTIONS)]

    def vocabulary() -> Iterator[str]:
        rng = random.Random("vocabulary")
        # So often that the system prompt becomes few tokens, and every word exactly one.
        yield from [tools_prompt(tools)] * 30
        for demonstrate in (Demonstrator(made, CLEAN), Demonstrator(made, CARELESS)):
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
            WarmStartStage(Demonstrator(made, CLEAN), 600, 16, target=0.7),
            WarmStartStage(Demonstrator(made, CARELESS), 600, 16),
        ),
        probe=Demonstrator(held_out, CLEAN),
        lr=6e-3,
        fingerprint=digest([str(seed), *(Path(file).read_text(encoding="utf-8") for file in SOURCES)]),
    )
