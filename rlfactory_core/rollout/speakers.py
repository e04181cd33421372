"""Who asks the model for an episode's turns: in tokens for training, or in messages where only a server knows it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Protocol

from rlfactory_core.clients.base import ChatClient
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.images import NAME
from rlfactory_core.protocols import ChatFormat, EnvStart, Sampler, Vision
from rlfactory_core.rollout.episode import Episode
from rlfactory_core.rollout.history import SUMMARIZE, SUMMARIZED, with_notes
from rlfactory_core.types import Message, Sample, ToolSpec, Turn
from rlfactory_core.utils.seeds import derive_seed

_log = logging.getLogger(__name__)


class Speaker(Protocol):
    """Asks a model for the turns of one episode."""

    def start(self, start: EnvStart) -> None: ...

    async def shorten(self, number: int) -> Turn | None:
        """Change what turn ``number`` sees of earlier ones. A turn is a summary, which the environment never sees."""

    async def say(self, number: int) -> Turn | None:
        """Turn ``number`` (from 0), without the environment's response; None if no token fits into the budget.

        Raises:
            BackendError: the model's server does not answer; an infra fault ends and masks the trajectory.
        """

    def hear(self, messages: Sequence[Message]) -> None:
        """Take the environment's response to the last turn."""

    async def close(self) -> None: ...


def prompt_ids(
    chat: ChatFormat, sample: Sample, messages: Sequence[Message], tools: Sequence[ToolSpec]
) -> tuple[int, ...]:
    """`ChatFormat.initial_ids`, with errors that name the sample."""
    try:
        return chat.initial_ids(messages, tools)
    except ChatFormatError as error:
        raise ChatFormatError(f"The prompt of sample '{sample.id}': {error}") from error


class TokenSpeaker:
    """A `Speaker` that asks a sampler and keeps all ids so far."""

    def __init__(self, episode: Episode, chat: ChatFormat, sampler: Sampler) -> None:
        self._episode, self._chat, self._sampler = episode, chat, sampler
        self._ids: list[int] = []
        self._context: tuple[int, ...] = ()  # what the next turn appends before it samples
        self._tools: tuple[ToolSpec, ...] = ()
        self._prompt: tuple[Message, ...] = ()
        self._messages: tuple[Message, ...] = ()  # all that the next turn sees
        self._heard: tuple[Message, ...] = ()  # the last of them, since the last turn
        self._row, self._fork = 0, ""
        self._vision: Vision | None = getattr(chat, "vision", None)
        self._seen = 0  # images in the row

    def start(self, start: EnvStart) -> None:
        self._tools, self._prompt = start.tools, start.messages
        self._messages = start.messages
        self._context = prompt_ids(self._chat, self._episode.sample, start.messages, start.tools)

    async def shorten(self, number: int) -> Turn | None:
        history, ids = self._episode.history, (*self._ids, *self._context)
        if history.asks_summary(len(ids)):
            return await self._summarize(number)
        changed = history.changed(self._chat, self._episode.sample, self._messages, self._tools, ids)
        if changed is not None:
            await self._begin_row(*changed)
        return None

    async def say(self, number: int) -> Turn | None:
        return await self._sample(self._episode, number)

    async def _summarize(self, number: int) -> Turn | None:
        """Ask for a summary after all that was heard, and begin a row with it; None if no token fits."""
        self._context = self._chat.observation_ids((*self._heard, SUMMARIZE))
        seeded = replace(self._episode, seed=derive_seed(self._episode.seed, "summary"))
        turn = await self._sample(seeded, number)
        if turn is not None:
            turn = replace(turn, message=replace(turn.message, tool_calls=()))  # nobody makes them
            messages = with_notes(self._prompt, turn.message.content)
            await self._begin_row(SUMMARIZED, messages, self._chat.initial_ids(messages, self._tools))
        return turn

    async def _begin_row(self, fork: str, messages: Sequence[Message], context: tuple[int, ...]) -> None:
        await self._sampler.release(self._session)
        self._fork, self._messages, self._context = fork, tuple(messages), context
        self._ids, self._row, self._seen = [], self._row + 1, 0

    async def _sample(self, episode: Episode, number: int) -> Turn | None:
        ids, context, most = self._ids, self._context, episode.limits.max_tokens
        if len(ids) + len(context) >= most:
            return None
        ids += context
        images = self._images()
        params = episode.sampling(number, most - len(ids), self._chat.stop_token_ids)
        params = replace(params, images=images) if images else params
        before = time.perf_counter()
        sampled = await self._sampler.sample(ids, params, session=self._session)
        sample_s = time.perf_counter() - before
        if len(sampled.token_ids) != len(sampled.logprobs):
            raise ValueError(
                f"the sampler gave {len(sampled.token_ids)} ids and {len(sampled.logprobs)} log-probs; "
                "each sampled id needs its own."
            )
        ids += sampled.token_ids
        message, fork = self._chat.parse(sampled.token_ids, self._tools), self._fork
        self._messages, self._fork = (*self._messages, message), ""
        images, self._seen = images[self._seen :], len(images)
        return Turn(
            context_ids=context,
            sampled_ids=sampled.token_ids,
            logprobs=sampled.logprobs,
            message=message,
            finish=sampled.finish,
            version=sampled.version,
            versions=sampled.versions,
            sample_s=sample_s,
            row=self._row,
            fork=fork,
            images=images,
        )

    def _images(self) -> tuple[str, ...]:
        """The images of the row so far, if the model sees them."""
        if self._vision is not None:
            return self._vision.images_in(self._messages)
        if any(NAME.search(message.content) for message in self._messages):
            _say_unseen(self._chat.name)
        return ()

    def hear(self, messages: Sequence[Message]) -> None:
        self._heard = tuple(messages)
        self._messages = (*self._messages, *messages)
        self._context = self._chat.observation_ids(messages)

    async def close(self) -> None:
        await self._sampler.release(self._session)

    @property
    def _session(self) -> str:
        return f"{self._episode.session}#{self._row}" if self._row else self._episode.session


class MessageSpeaker:
    """A `Speaker` that asks a chat client and keeps the conversation."""

    def __init__(self, episode: Episode, client: ChatClient) -> None:
        self._episode, self._client = episode, client
        self._messages: list[Message] = []
        self._tools: tuple[ToolSpec, ...] = ()
        self._used = 0  # tokens of the whole conversation, as the server counts

    def start(self, start: EnvStart) -> None:
        self._messages += start.messages
        self._tools = start.tools

    async def shorten(self, number: int) -> Turn | None:
        return None

    async def say(self, number: int) -> Turn | None:
        left = self._episode.limits.max_tokens - self._used
        if left <= 0:
            return None
        params = self._episode.sampling(number, left)
        before = time.perf_counter()
        completion = await self._client.complete(self._messages, self._tools, params)
        sample_s = time.perf_counter() - before
        if completion is None:
            return None
        self._used = completion.prompt_tokens + completion.sampled_tokens
        self._messages.append(completion.message)
        return Turn((), (), (), completion.message, finish=completion.finish, sample_s=sample_s)

    def hear(self, messages: Sequence[Message]) -> None:
        self._messages += messages

    async def close(self) -> None:
        """The client outlives the episode."""


@cache
def _say_unseen(chat: str) -> None:
    _log.warning("The chat format %s has no images: the model reads the name of an image in its place.", chat)
