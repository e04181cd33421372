"""Demonstrations of look-ups for the policy's warm start: first correct ones, then careless ones.

The careless ones answer from the first record if two are needed, ask for a wrong name, copy a wrong name, or make
format errors. A model that imitates them can do every step, but seldom does all of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rlfactory_core import Message, tiny
from rlfactory_core.tiny import Demonstration, answer_text, call
from rlfactory_judge.demo.world import Catalogue, Question

TOOL = "look_up"


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
    """Writes one episode at each call, about a question of one of ``catalogues``.

    Args:
        two_hop: the share of questions that need two records.
    """

    catalogues: Sequence[Catalogue]
    two_hop: float
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
