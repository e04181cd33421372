"""Policies without a model: what is said next is a function of the conversation.

A policy is called as ``policy(sample, messages, tools, rng)`` with the episode so far, from the prompt to the last
observation, the tools that it was offered, and random numbers of its own. It gives a `Message`, which the chat format
writes, or a text, which stands in the turn as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from rlfactory_core.demonstrated import solved
from rlfactory_core.task import Task
from rlfactory_core.tiny import answer_text
from rlfactory_core.types import Message, Sample, ToolCall, ToolSpec

Policy = Callable[[Sample, Sequence[Message], Sequence[ToolSpec], random.Random], Message | str]


def oracle(task: Task) -> Policy:
    """Knows the answer, and how to find it: `Task.solve`."""

    def policy(
        sample: Sample, messages: Sequence[Message], tools: Sequence[ToolSpec], rng: random.Random
    ) -> Message | str:
        return solved(task.solve(sample, messages), f"{type(task).__name__}.solve, sample '{sample.id}'")

    return policy


def constant(text: str) -> Policy:
    """Says the same in every turn; ``constant("")`` says nothing."""

    def policy(
        sample: Sample, messages: Sequence[Message], tools: Sequence[ToolSpec], rng: random.Random
    ) -> Message | str:
        return text

    return policy


def script(*turns: Message | ToolCall | str) -> Policy:
    """Says one after the other, whatever comes back; the last again where the episode goes on.

    Args:
        turns: a `Message`, a call made with `rlfactory_core.tiny.call`, or a text.
    """
    said = [Message("assistant", "", tool_calls=(turn,)) if isinstance(turn, ToolCall) else turn for turn in turns]

    def policy(
        sample: Sample, messages: Sequence[Message], tools: Sequence[ToolSpec], rng: random.Random
    ) -> Message | str:
        turn = sum(message.role == "assistant" for message in messages[len(sample.messages) :])
        return said[min(turn, len(said) - 1)]

    return policy


def guess(answers: Sequence[str]) -> Policy:
    """Answers at once, with one of ``answers``, whatever the question."""

    def policy(
        sample: Sample, messages: Sequence[Message], tools: Sequence[ToolSpec], rng: random.Random
    ) -> Message | str:
        return answer_text(rng.choice(answers))

    return policy
