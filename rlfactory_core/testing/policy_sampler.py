"""A policy in a model's place: the real rollout runs, and only the tokens come from a function."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from rlfactory_core.protocols import ChatFormat, Env, EnvStart, EnvStep
from rlfactory_core.testing.policies import Policy
from rlfactory_core.types import Message, Sample, SampledTokens, SamplingParams, ToolSpec

LOGPROB = -0.5  # of every token: any number will do


class PolicySampler:
    """A `Sampler` for one episode, whose environment has to be wrapped by `hearing`.

    A turn longer than ``max_tokens`` is cut, as a model's would be.
    """

    def __init__(self, policy: Policy, sample: Sample, chat: ChatFormat, seed: int) -> None:
        self._policy, self._sample, self._chat = policy, sample, chat
        self._rng = random.Random(seed)
        self._messages: list[Message] = []
        self._tools: tuple[ToolSpec, ...] = ()

    def hearing(self, env: Env) -> Env:
        """The environment, whose conversation the policy is told."""
        return _Heard(env, self)

    def hear(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> None:
        self._messages += messages
        self._tools = (*self._tools, *tools)

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        said = self._policy(self._sample, tuple(self._messages), self._tools, self._rng)
        whole = turn_ids(self._chat, said)
        kept = whole[: params.max_tokens]
        return SampledTokens(kept, (LOGPROB,) * len(kept), "stop" if kept == whole else "length")

    async def release(self, session: str) -> None:
        """Nothing is kept."""


class _Heard:
    """Passes everything on, and tells the sampler."""

    def __init__(self, env: Env, sampler: PolicySampler) -> None:
        self._env, self._sampler = env, sampler

    async def start(self) -> EnvStart:
        start = await self._env.start()
        self._sampler.hear(start.messages, start.tools)
        return start

    async def step(self, message: Message) -> EnvStep:
        step = await self._env.step(message)
        self._sampler.hear((message, *step.messages))
        return step

    async def close(self) -> None:
        await self._env.close()


def turn_ids(chat: ChatFormat, said: Message | str) -> tuple[int, ...]:
    """What a model would have sampled to say it, stop token included."""
    if isinstance(said, str):
        return (*chat.encode(said), chat.stop_token_ids[0])
    written = getattr(chat, "written", None)  # every `chat.template.TemplateFormat` has it
    ids = chat.encode(written(said) if written else hermes_text(said))
    return ids if ids[-1:] and ids[-1] in chat.stop_token_ids else (*ids, chat.stop_token_ids[0])


def hermes_text(message: Message) -> str:
    """As Qwen3 and `ToyChatFormat` have it."""
    calls = (
        f"<tool_call>\n{json.dumps({'name': call.name, 'arguments': dict(call.arguments or {})})}\n</tool_call>"
        for call in message.tool_calls
    )
    return "\n".join(part for part in (message.content, *calls) if part)
