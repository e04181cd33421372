"""Rollouts in messages, for evaluating a model that only an OpenAI-compatible server knows.

The loop, the environment and the budgets are those of `rollout`; turns have a message and results and no token ids, so
these trajectories can be scored and read, not trained on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rlfactory_core.clients.base import ChatClient
from rlfactory_core.protocols import EnvStart
from rlfactory_core.rollout import Episode, play_episode
from rlfactory_core.types import Message, ToolSpec, Trajectory, Turn


async def chat_rollout(episode: Episode, client: ChatClient) -> Trajectory:
    """One attempt at a sample; stops as `rollout.rollout` does.

    ``max_tokens`` counts what the server says of the last turn's prompt and answer, so an observation may exceed it
    once; a server that counts nothing is held to ``max_turn_tokens`` alone. A client that fails ends the trajectory
    with an infra fault: masked, never scored 0.
    """
    return await play_episode(episode, _MessageSpeaker(episode, client))


class _MessageSpeaker:
    """Speaks through a chat client; keeps the conversation."""

    def __init__(self, episode: Episode, client: ChatClient) -> None:
        self._episode, self._client = episode, client
        self._messages: list[Message] = []
        self._tools: tuple[ToolSpec, ...] = ()
        self._used = 0  # tokens of the whole conversation, as the server counts

    def start(self, start: EnvStart) -> None:
        self._messages += start.messages
        self._tools = start.tools

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
