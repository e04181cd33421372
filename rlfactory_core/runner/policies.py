"""Policies without a model: functions from the conversation to the next turn.

A policy is called as ``policy(sample, messages, tools, rng)`` with the episode so far, from the prompt to the last
observation, the offered tools, and a random generator of its own. It returns a `Message`, which the chat format
writes, or a string, which becomes the turn as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from rlfactory_core.protocols import ChatFormat, Request, Sampled
from rlfactory_core.rollout.written import written_ids
from rlfactory_core.tasks.solving import solve_turn
from rlfactory_core.tasks.task import Task
from rlfactory_core.tiny import answer_text
from rlfactory_core.types import Message, Sample, ToolCall, ToolSpec

Policy = Callable[[Sample, Sequence[Message], Sequence[ToolSpec], random.Random], Message | str]


def oracle(task: Task) -> Policy:
    """Plays `Task.solve`, which knows the right calls and the answer."""

    return lambda sample, messages, tools, rng: solve_turn(task, sample, messages)


def constant(text: str) -> Policy:
    """Says the same in every turn; ``constant("")`` says nothing."""

    return lambda sample, messages, tools, rng: text


def script(*turns: Message | ToolCall | str) -> Policy:
    """Says the turns one after another; the last one is repeated if the episode goes on.

    Args:
        turns: a `Message`, a call made with `rlfactory_core.tiny.call`, or a text.
    """
    texts = [Message("assistant", "", tool_calls=(turn,)) if isinstance(turn, ToolCall) else turn for turn in turns]

    def policy(sample: Sample, messages: Sequence[Message], *_: object) -> Message | str:
        turn = sum(message.role == "assistant" for message in messages[len(sample.messages) :])
        return texts[min(turn, len(texts) - 1)]

    return policy


def guess(answers: Sequence[str]) -> Policy:
    """Answers at once, with one of ``answers``, whatever the question."""

    return lambda sample, messages, tools, rng: answer_text(rng.choice(answers))


class PolicyModel:
    """A `protocols.Model` for one episode whose turns a policy chooses; a turn beyond ``max_tokens`` is truncated."""

    def __init__(self, policy: Policy, sample: Sample, chat: ChatFormat, seed: int) -> None:
        self.chat = chat
        self._policy, self._sample, self._rng = policy, sample, random.Random(seed)

    async def answer(self, request: Request) -> Sampled:
        turn = self._policy(self._sample, request.messages, request.tools, self._rng)
        end = self.chat.stop_token_ids[0]
        whole = (*self.chat.encode(turn), end) if isinstance(turn, str) else written_ids(self.chat, turn)
        ids = whole[: request.params.max_tokens]
        message, logprobs = self.chat.parse(ids, request.tools), (-0.5,) * len(ids)  # whose value does not matter
        return Sampled(message, "stop" if ids == whole else "length", len(request.ids), len(ids), ids, logprobs)

    async def release(self, session: str) -> None:
        """Nothing to release."""
