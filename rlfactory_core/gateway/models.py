"""What answers an agent's requests: a model in token ids, or one that only a server knows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from rlfactory_core.clients.base import ChatClient
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.protocols import ChatFormat, Sampler
from rlfactory_core.types import Message, SampledTokens, SamplingParams, ToolSpec

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
    unsampled: tuple[int, ...] = ()  # what ends the turn in the next context, if a stop text ended the sampling


class GatewayModel(Protocol):
    """Renders requests and samples answers."""

    stop_token_ids: tuple[int, ...]
    has_ids: bool  # whether its answers have token ids, whose number the run limits

    def prompt_ids(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """The ids of a whole conversation, as `ChatFormat.initial_ids`; empty without a tokenizer."""
        ...

    def observation_ids(self, messages: Sequence[Message]) -> tuple[int, ...]: ...

    def opening_ids(self, opening: str) -> tuple[int, ...]:
        """The ids of a text with which the answer begins, after those of the prompt.

        Raises:
            ChatFormatError: answers of this model cannot be begun.
        """
        ...

    async def sample(
        self,
        ids: Sequence[int],
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        params: SamplingParams,
        session: str,
    ) -> Sampled | None:
        """The next answer; None if the conversation exceeds the model's context.

        Args:
            ids: of the messages. If the last one is the assistant's, they end with its `opening_ids`, and the answer
                is what follows it.

        Raises:
            BackendError: the model's server does not answer.
        """
        ...

    def token_texts(self, ids: Sequence[int]) -> list[str]: ...

    def text(self, ids: Sequence[int]) -> str: ...

    async def release(self, session: str) -> None: ...


class TokenModel:
    """A `GatewayModel` for training: the engine's sampler and the model's chat format."""

    has_ids = True

    def __init__(self, chat: ChatFormat, sampler: Sampler) -> None:
        self._chat, self._sampler = chat, sampler
        self.stop_token_ids = chat.stop_token_ids
        self._written = getattr(chat, "written", None)  # `ChatFormatTraits`
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
        sampled = self._until_stop(sampled, params.stop)
        opening = messages[-1].content if messages and messages[-1].role == "assistant" else ""
        begun = self.opening_ids(opening) if opening else ()
        message = read_turn(self._chat, (*begun, *sampled.token_ids), tools)
        if opening:
            message = replace(message, content=_after(opening, message.content))
        unsampled = () if self._has_end(sampled) else self._chat.stop_token_ids[:1]
        return Sampled(
            message,
            sampled.finish,
            sampled.token_ids,
            sampled.logprobs,
            sampled.version,
            len(ids),
            len(sampled.token_ids),
            sampled.versions,
            unsampled,
        )

    def opening_ids(self, opening: str) -> tuple[int, ...]:
        written = self._written(Message("assistant", _CONTENT)) if self._written else ""
        head = written[: max(written.rfind(_CONTENT), 0)]  # such as the end of the thinking, or a channel
        thinking = _OPEN_THINKING.search(self.text(self.observation_ids((Message("user", "?"),))))
        head = head or (f"</{thinking[1]}>\n\n" if thinking else "")
        return (*self._chat.encode(head), *self._chat.encode(opening))

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        return [self._chat.decode([each]) for each in ids]

    def text(self, ids: Sequence[int]) -> str:
        return self._chat.decode(ids)

    def _has_end(self, sampled: SampledTokens) -> bool:
        return sampled.finish != "stop" or sampled.token_ids[-1:] == () or sampled.token_ids[-1] in self.stop_token_ids

    def _until_stop(self, sampled: SampledTokens, stop: Sequence[str]) -> SampledTokens:
        """The turn up to the token that completes one of the stop texts.

        Samplers know no texts, and sample a turn to its own end. What follows the text is dropped, as if it had not
        been sampled: the distribution of what is before it is the same. A stop token right after the text stays.
        """

        def has_stop(end: int) -> bool:
            begun = self.text(sampled.token_ids[:end])
            return any(text in begun for text in stop if text)

        low, high = 0, len(sampled.token_ids)  # the text is not in the first `low` ids, and in the first `high`
        if not stop or not has_stop(high):
            return sampled
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if has_stop(middle) else (middle, high)
        if high < len(sampled.token_ids) and sampled.token_ids[high] in self.stop_token_ids:
            high += 1
        return replace(
            sampled,
            token_ids=sampled.token_ids[:high],
            logprobs=sampled.logprobs[:high],
            finish="stop",
            versions=sampled.versions[:high],
        )


_CONTENT = "probe"  # stands for an answer's text, in which a mark of the template could be
_OPEN_THINKING = re.compile(r"<(think[^<>]*)>\s*$")  # at the end of a prompt


def _after(opening: str, content: str) -> str:
    """A text without its beginning; parsers strip white space at its ends."""
    for begun in (opening, opening.lstrip(), opening.strip()):
        if content.startswith(begun):
            return content[len(begun) :]
    return content


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

    def opening_ids(self, opening: str) -> tuple[int, ...]:
        raise ChatFormatError(
            f"The last message is the assistant's, {opening!r:.80}. A model behind a server does not continue it: end "
            "with a message of the user or of a tool."
        )

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

    def text(self, ids: Sequence[int]) -> str:
        return ""

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
