"""What answers an agent's requests: a model in token ids, or one that only a server knows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from rlfactory_core.clients.base import ChatClient
from rlfactory_core.protocols import ChatFormat, Sampler
from rlfactory_core.types import Message, SamplingParams, ToolSpec

_UNTHOUGHT = re.compile(r"^.*?(</think>|\[/THINK\])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sampled:
    """An answer before it belongs to a row; a model behind a server gives no ids."""

    message: Message
    finish: Literal["stop", "length"]
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    version: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    versions: tuple[int, ...] = ()


class GatewayModel(Protocol):
    """Renders requests and samples answers."""

    stop_token_ids: tuple[int, ...]
    has_ids: bool  # whether its answers have token ids, whose number the run limits

    def prompt_ids(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """The ids of a whole conversation, as `ChatFormat.initial_ids`; empty without a tokenizer."""
        ...

    def observation_ids(self, messages: Sequence[Message]) -> tuple[int, ...]: ...

    async def sample(
        self,
        ids: Sequence[int],
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        params: SamplingParams,
        session: str,
    ) -> Sampled | None:
        """The next answer; None if the conversation exceeds the model's context.

        Raises:
            BackendError: the model's server does not answer.
        """
        ...

    def token_texts(self, ids: Sequence[int]) -> list[str]: ...

    async def release(self, session: str) -> None: ...


class TokenModel:
    """A `GatewayModel` for training: the engine's sampler and the model's chat format."""

    has_ids = True

    def __init__(self, chat: ChatFormat, sampler: Sampler) -> None:
        self._chat, self._sampler = chat, sampler
        self.stop_token_ids = chat.stop_token_ids
        self.prompt_ids, self.observation_ids, self.release = chat.initial_ids, chat.observation_ids, sampler.release

    async def sample(
        self,
        ids: Sequence[int],
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        params: SamplingParams,
        session: str,
    ) -> Sampled | None:
        sampled = await self._sampler.sample(ids, params, session=session)
        if len(sampled.token_ids) != len(sampled.logprobs):
            raise ValueError(
                f"the sampler gave {len(sampled.token_ids)} ids and {len(sampled.logprobs)} log-probs; "
                "each sampled id needs its own."
            )
        return Sampled(
            read_turn(self._chat, sampled.token_ids, tools),
            sampled.finish,
            sampled.token_ids,
            sampled.logprobs,
            sampled.version,
            len(ids),
            len(sampled.token_ids),
            sampled.versions,
        )

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        return [self._chat.decode([each]) for each in ids]


class ClientModel:
    """A `GatewayModel` behind a chat client, such as a teacher: its answers can be recorded, but not trained on."""

    stop_token_ids: tuple[int, ...] = ()
    has_ids = False

    def __init__(self, client: ChatClient) -> None:
        self._client = client

    def prompt_ids(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        return ()

    def observation_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return ()

    async def sample(
        self,
        ids: Sequence[int],
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        params: SamplingParams,
        session: str,
    ) -> Sampled | None:
        done = await self._client.complete(messages, tools, params)
        if done is None:
            return None
        return Sampled(done.message, done.finish, prompt_tokens=done.prompt_tokens, sampled_tokens=done.sampled_tokens)

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        return []

    async def release(self, session: str) -> None:
        """The client has no sessions."""


def read_turn(chat: ChatFormat, sampled_ids: Sequence[int], tools: Sequence[ToolSpec]) -> Message:
    """A sampled turn as a message. Without tools in the request no call is read from it: the text stays as it is."""
    message = chat.parse(sampled_ids, tools)
    if tools or not message.tool_calls:
        return message
    ids = list(sampled_ids)
    while ids and ids[-1] in chat.stop_token_ids:
        ids.pop()
    text = chat.decode(ids)
    content = _UNTHOUGHT.sub("", text, count=1) if message.reasoning else text
    return replace(message, content=content.strip(), tool_calls=())
