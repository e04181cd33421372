"""Rollouts in messages, for evaluating a model that only an OpenAI-compatible server knows.

The loop, the environment and the budgets are those of `rollout`; turns have a message and results and no token ids, so
these trajectories can be scored and read, not trained on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rlfactory_core.clients.base import ChatClient
from rlfactory_core.protocols import EnvStart
from rlfactory_core.rollout import MakeEnv, RolloutLimits, derive_seed, gather_all, play_episode
from rlfactory_core.types import Group, Message, Sample, SamplingParams, ToolSpec, Trajectory, Turn


async def chat_rollout(
    sample: Sample,
    attempt: int,
    *,
    make_env: MakeEnv,
    client: ChatClient,
    limits: RolloutLimits,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
    session: str,
) -> Trajectory:
    """One attempt at a sample; stops as `rollout.rollout` does.

    ``max_tokens`` counts what the server says of the last turn's prompt and answer, so an observation may exceed it
    once; a server that counts nothing is held to ``max_turn_tokens`` alone. A client that fails ends the trajectory
    with an infra fault: masked, never scored 0.
    """
    speaker = _MessageSpeaker(client, limits, temperature, top_p, seed)
    return await play_episode(sample, attempt, make_env=make_env, speaker=speaker, limits=limits, session=session)


async def chat_rollout_group(
    sample: Sample,
    attempts: int,
    *,
    make_env: MakeEnv,
    client: ChatClient,
    limits: RolloutLimits,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
    session: str,
) -> Group:
    """All attempts at one sample at once; seeds and sessions as in `rollout.rollout_group`."""
    trajectories = await gather_all(
        chat_rollout(
            sample,
            attempt,
            make_env=make_env,
            client=client,
            limits=limits,
            temperature=temperature,
            top_p=top_p,
            seed=derive_seed(seed, sample.id, attempt),
            session=f"{session}/{attempt}",
        )
        for attempt in range(attempts)
    )
    return Group(sample, tuple(trajectories))


class _MessageSpeaker:
    """Speaks through a chat client; keeps the conversation."""

    def __init__(self, client: ChatClient, limits: RolloutLimits, temperature: float, top_p: float, seed: int) -> None:
        self._client, self._limits = client, limits
        self._temperature, self._top_p, self._seed = temperature, top_p, seed
        self._messages: list[Message] = []
        self._tools: tuple[ToolSpec, ...] = ()
        self._used = 0  # tokens of the whole conversation, as the server counts

    def start(self, start: EnvStart) -> None:
        self._messages += start.messages
        self._tools = start.tools

    async def say(self, number: int) -> Turn | None:
        left = self._limits.max_tokens - self._used
        if left <= 0:
            return None
        params = SamplingParams(
            max_tokens=min(self._limits.max_turn_tokens, left),
            temperature=self._temperature,
            top_p=self._top_p,
            seed=derive_seed(self._seed, number),
        )
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
