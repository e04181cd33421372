"""Demonstrations for the warm start: correct searches first, then careless ones.

The careless demonstrator stops after the first of two searches, writes poor queries, copies wrong names and makes
format errors. A model that imitates it can do each step, but seldom all of them. This is left for GRPO to teach.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlfactory_core import Message, tiny
from rlfactory_core.tiny import answer_text, call
from rlfactory_search.worlds import RELATION, RELATIONS, Question, World

Search = Callable[[World, str], str]


@dataclass(frozen=True, slots=True)
class Carelessness:
    """Probabilities of mistakes, for each search or turn."""

    stop_early: float = 0.0
    clumsy_query: float = 0.0
    wrong_copy: float = 0.0
    format_slip: float = 0.0


def call_text(query: str) -> str:
    """A call of the search tool in Qwen3's format."""
    return tiny.call_text("search", {"query": query})


def good_query(relation: str, subject: str) -> str:
    return f"{RELATION[relation].keywords} {subject}"


def next_turn(question: Question, searches: int) -> Message:
    """The correct turn after ``searches`` searches: the next search, or at last the answer."""
    if searches == question.hops:
        return Message("assistant", answer_text(question.answer))
    query = good_query(question.relations[searches], question.path[searches])
    return Message("assistant", "", tool_calls=(call("search", query=query),))


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """Writes an episode about a random question of ``worlds``.

    Args:
        search: gives the tool's result for a query in a world.
        two_hop: the share of questions that need two searches.
    """

    worlds: Sequence[World]
    search: Search
    two_hop: float
    care: Carelessness = Carelessness()

    def __call__(self, rng: random.Random) -> tuple[Message, ...]:
        world = rng.choice(self.worlds)
        hops = 2 if rng.random() < self.two_hop else 1
        question = rng.choice(world.questions)
        while question.hops != hops:
            question = rng.choice(world.questions)
        return self.episode(world, question, rng)

    def episode(self, world: World, question: Question, rng: random.Random) -> tuple[Message, ...]:
        messages = [Message("user", question.text)]
        subject = question.path[0]
        for hop, relation in enumerate(question.relations):
            query = good_query(relation, subject)
            if rng.random() < self.care.clumsy_query:
                query = self._clumsy(world, relation, subject, rng)
            turn = call_text(query)
            if rng.random() < self.care.format_slip:
                messages.append(Message("assistant", turn.replace("}}", "}")))
                return tuple(messages)
            result = self.search(world, query)
            messages += [Message("assistant", turn), Message("tool", result, name="search")]
            subject = question.path[hop + 1]
            if subject not in result or rng.random() < self.care.wrong_copy:
                subject = _any_object(result, rng)
            if hop + 1 < question.hops and rng.random() < self.care.stop_early:
                break
        answer = answer_text(subject)
        if rng.random() < self.care.format_slip:
            answer = answer.replace(" </answer>", "")
        return (*messages, Message("assistant", answer))

    def _clumsy(self, world: World, relation: str, subject: str, rng: random.Random) -> str:
        words = rng.choice(world.documents).rstrip(".").split()
        return rng.choice(
            [
                good_query(relation, subject.rsplit(maxsplit=1)[-1]),
                good_query(rng.choice(RELATIONS).name, subject),
                good_query(relation, rng.choice(words)),
            ]
        )


def _any_object(result: str, rng: random.Random) -> str:
    """The object of a random found fact: its last words."""
    line = rng.choice(result.splitlines() or ["nothing"])
    return line.rsplit(" in ", 1)[-1].rsplit(" for ", 1)[-1].rstrip(".")
