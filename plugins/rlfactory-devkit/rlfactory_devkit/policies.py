"""Policies without a model, which are functions from the conversation to the next turn, and samplers without one.

A policy is called as ``policy(sample, messages, tools, rng)`` with the episode so far, from the prompt to the last
observation, the offered tools, and a random generator of its own. It returns a `Message`, which the chat format
writes, or a string, which becomes the turn as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from rlfactory_core.plugins.declared import declared
from rlfactory_core.protocols import ChatFormat, ChatFormatTraits, EnvStart, EnvStep, Request, Sampled
from rlfactory_core.rollout import TokenModel
from rlfactory_core.tasks.solving import solve_turn
from rlfactory_core.tasks.task import Task
from rlfactory_core.tiny import answer_text, calls_text
from rlfactory_core.types import Message, Sample, SampledTokens, SamplingParams, ToolCall, ToolSpec
from rlfactory_devkit.wrappers import EnvWrapper

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
    said = [Message("assistant", "", tool_calls=(turn,)) if isinstance(turn, ToolCall) else turn for turn in turns]

    def policy(sample: Sample, messages: Sequence[Message], *_: object) -> Message | str:
        turn = sum(message.role == "assistant" for message in messages[len(sample.messages) :])
        return said[min(turn, len(said) - 1)]

    return policy


def guess(answers: Sequence[str]) -> Policy:
    """Answers at once, with one of ``answers``, whatever the question."""

    return lambda sample, messages, tools, rng: answer_text(rng.choice(answers))


LOGPROB = -0.5  # of every token; its value does not matter


class PolicySampler(EnvWrapper):
    """A `Sampler` for one episode that takes its turns from a policy.

    The episode's environment has to be wrapped by `around`, so that the policy gets the conversation. A turn longer
    than ``max_tokens`` is truncated, as a model's turn would be.
    """

    def __init__(self, policy: Policy, sample: Sample, chat: ChatFormat, seed: int) -> None:
        self._policy, self._sample, self._chat = policy, sample, chat
        self._rng = random.Random(seed)
        self.messages: tuple[Message, ...] = ()
        self.tools: tuple[ToolSpec, ...] = ()

    async def start(self) -> EnvStart:
        start = await super().start()
        self.messages, self.tools = start.messages, start.tools
        return start

    async def step(self, message: Message) -> EnvStep:
        step = await super().step(message)
        self.messages = (*self.messages, message, *step.messages)
        return step

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        said = self._policy(self._sample, self.messages, self.tools, self._rng)
        return _sampled(turn_ids(self._chat, said), params, LOGPROB)

    async def release(self, session: str) -> None:
        """Nothing to release."""


class PolicyModel(TokenModel):
    """Answers an agent's requests by a policy, in the ids of a chat format."""

    def __init__(self, chat: ChatFormat, sampler: PolicySampler) -> None:
        super().__init__(chat, sampler)
        self._policy = sampler

    async def answer(self, request: Request) -> Sampled:
        self._policy.messages, self._policy.tools = tuple(request.messages), tuple(request.tools)
        return await super().answer(request)


class ScriptedSampler:
    """A `Sampler` that follows a script.

    It also checks its caller: within a session, a call's ids have to begin with the last call's ids and its answer.

    Args:
        script: the texts of the turns, the same in every session, or a function of session and turn number.
        chat: encodes the texts, and has the stop token that ends each of them.
        logprob: the log-prob of every token.
    """

    def __init__(
        self, script: Sequence[str] | Callable[[str, int], str], chat: ChatFormat, *, logprob: float = -0.5
    ) -> None:
        self._script, self._chat, self._logprob = script, chat, logprob
        self._contexts: dict[str, tuple[int, ...]] = {}
        self._turns: dict[str, int] = {}
        self.params: list[SamplingParams] = []  # of every call, in order
        self.released: list[str] = []  # sessions, in order

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        """The script's next text, truncated at ``max_tokens``."""
        known = self._contexts.get(session, ())
        if tuple(ids[: len(known)]) != known:
            raise AssertionError(f"session {session!r}: the ids do not begin with those of its last call and answer")
        turn = self._turns.get(session, 0)
        self._turns[session] = turn + 1
        self.params.append(params)
        text = self._script(session, turn) if callable(self._script) else self._script[turn]
        whole = (*self._chat.encode(text), self._chat.stop_token_ids[0])
        sampled = _sampled(whole, params, self._logprob)
        self._contexts[session] = (*ids, *sampled.token_ids)
        return sampled

    async def release(self, session: str) -> None:
        self._contexts.pop(session, None)
        self._turns.pop(session, None)
        self.released.append(session)


def _sampled(whole: tuple[int, ...], params: SamplingParams, logprob: float) -> SampledTokens:
    """A turn, truncated at ``max_tokens``."""
    kept = whole[: params.max_tokens]
    return SampledTokens(kept, (logprob,) * len(kept), "stop" if kept == whole else "length")


def turn_ids(chat: ChatFormat, said: Message | str) -> tuple[int, ...]:
    """The ids that a model would have sampled for this turn, stop token included."""
    if isinstance(said, str):
        return (*chat.encode(said), chat.stop_token_ids[0])
    written = declared(chat, ChatFormatTraits, f"The chat format '{chat.name}'").written
    text = written(said) if written else "\n".join(filter(None, (said.content, calls_text(said))))  # as in Hermes
    ids = chat.encode(text)
    return ids if ids[-1:] and ids[-1] in chat.stop_token_ids else (*ids, chat.stop_token_ids[0])
