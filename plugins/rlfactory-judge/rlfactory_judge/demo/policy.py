"""The tiny policy: its size, and the demonstrations that it learns from before GRPO."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlfactory_core import Message, tiny
from rlfactory_core.cache import digest
from rlfactory_core.tiny import Demonstration, TinyModelRecipe, WarmStartStage, answer_text, call, tools_prompt
from rlfactory_core.types import ToolSpec
from rlfactory_judge.demo import world
from rlfactory_judge.demo.world import Catalogue, Names, Question

TOOL = "look_up"
SOURCES = (world.__file__, __file__)  # a cached model of other sources is not used
DEMO_CATALOGUES = 16  # none of them is trained or evaluated on
ARCHITECTURE = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 32,
    "max_position_embeddings": 1024,
}


@dataclass(frozen=True, slots=True)
class Carelessness:
    """Probabilities, for each record or turn."""

    stop_early: float = 0.0
    wrong_name: float = 0.0
    wrong_copy: float = 0.0
    format_slip: float = 0.0


def call_text(name: str) -> str:
    """A look-up as Qwen3 writes it."""
    return tiny.call_text(TOOL, _arguments(name))


def next_turn(question: Question, looked_up: int) -> Message:
    """The right turn after ``looked_up`` look-ups: the next look-up, or after the last one the answer."""
    if looked_up == question.hops:
        return Message("assistant", answer_text(question.answer))
    return Message("assistant", "", tool_calls=(call(TOOL, **_arguments(question.path[looked_up])),))


def _arguments(name: str) -> dict[str, str]:
    """With a space before it, the name is the same token as in other texts."""
    return {"name": f" {name}"}


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """Writes one episode at each call, about a question of one of ``catalogues``."""

    catalogues: Sequence[Catalogue]
    two_hop: float  # share of the questions that need two records
    care: Carelessness = Carelessness()

    def __call__(self, rng: random.Random) -> Demonstration:
        catalogue = rng.choice(self.catalogues)
        hops = 2 if rng.random() < self.two_hop else 1
        question = rng.choice(catalogue.questions)
        while question.hops != hops:
            question = rng.choice(catalogue.questions)
        return self.episode(catalogue, question, rng)

    def episode(self, catalogue: Catalogue, question: Question, rng: random.Random) -> Demonstration:
        care = self.care
        messages = [Message("user", question.text)]
        answer = question.answer
        for hop, subject in enumerate(question.path[:-1], 1):
            asked = rng.choice(list(catalogue.records)) if rng.random() < care.wrong_name else subject
            said = call_text(asked)
            if rng.random() < care.format_slip:
                return (*messages, Message("assistant", said.replace("}}", "}")))
            messages += [Message("assistant", said), Message("tool", catalogue.look_up(asked), name=TOOL)]
            record = catalogue.records[asked]
            if asked != subject or rng.random() < care.wrong_copy:
                answer = rng.choice((record.person, record.town))
                break
            if hop < question.hops and rng.random() < care.stop_early:
                answer = record.town if question.text.startswith("Where") else record.person
                break
        text = answer_text(answer)
        if rng.random() < care.format_slip:
            text = text.replace(" </answer>", "")
        return (*messages, Message("assistant", text))


CARELESS = Carelessness(stop_early=0.7, wrong_name=0.15, wrong_copy=0.12, format_slip=0.08)


def recipe(names: Names, tool: ToolSpec) -> TinyModelRecipe:
    """The recipe over catalogues made of ``names``, for a model that is offered ``tool``."""
    made = [Catalogue.make(names, f"demo-{number}") for number in range(DEMO_CATALOGUES)]
    held_out = [Catalogue.make(names, "probe")]

    def vocabulary() -> Iterator[str]:
        rng = random.Random("vocabulary")
        demonstrate = Demonstrator(made[:1], two_hop=0.5)
        # So often that the system prompt becomes few tokens, and every name exactly one.
        yield from [tools_prompt([tool])] * 30
        for _ in range(300):
            yield "\n".join(message.content for message in demonstrate(rng))
        yield from ["user\nassistant\n"] * 30  # the template's, in every turn
        for word in names.words:
            yield from [f" {word}"] * 12

    return TinyModelRecipe(
        architecture=ARCHITECTURE,
        vocabulary=vocabulary,
        vocab_size=1024,
        stages=(
            WarmStartStage(Demonstrator(made, 0.35), 700, 16, target=0.95, context_weight=0.3),
            WarmStartStage(Demonstrator(made, 0.5, CARELESS), 120, 16, context_weight=0.3),
        ),
        probe=Demonstrator(held_out, 0.5),
        fingerprint=digest([*names.words, *(Path(file).read_text(encoding="utf-8") for file in SOURCES)]),
    )
