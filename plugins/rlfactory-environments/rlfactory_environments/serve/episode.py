"""One episode of a task that a client plays from outside, message by message.

The run's own loop plays it, so limits, tools and rewards are those of training. Where the loop asks the model, the
client answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from rlfactory_core.clients.base import Completion
from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.protocols import Env, EnvStart, EnvStep
from rlfactory_core.rollout.env_calls import ask_env
from rlfactory_core.types import Message, Sample, SamplingParams, StopReason, ToolResult, ToolSpec, Trajectory


@dataclass(frozen=True, slots=True)
class Response:
    """What a client gets for a message, and at the beginning."""

    messages: tuple[Message, ...]  # that the model reads next; at the beginning the prompt
    tools: tuple[ToolSpec, ...] = ()  # that the model is offered; at the beginning only
    results: tuple[ToolResult, ...] = ()  # of the message's calls
    reward: float | None = None  # since the last response; None: there was none
    stop: StopReason | None = None  # why the episode is over; None: it goes on


class PlayedEpisode:
    """Call `begin` first, then `say`, and `close` last.

    Args:
        runtime: the open task.
        session: a name that no other episode of the runtime has.
    """

    def __init__(self, runtime: Any, sample: Sample, session: str) -> None:
        self.sample, self.stop = sample, StopReason.FAULT
        self.turns = 0
        self._runtime = runtime
        self._session = session
        self._watched: _Watched | None = None
        self._said: asyncio.Queue[Message] = asyncio.Queue()
        self._asked = asyncio.Event()
        self._playing: asyncio.Task[Trajectory] | None = None
        self._rewarded = 0.0  # what the responses have given so far

    @property
    def over(self) -> bool:
        return self._playing is not None and self._playing.done()

    async def begin(self) -> Response:
        """
        Raises:
            BackendError: the environment cannot begin.
        """
        self._playing = asyncio.create_task(self._play())
        await self._settled()
        if self.over:
            raise BackendError(_lost(await self._playing))
        return self._beginning()

    async def say(self, message: Message) -> Response:
        """The assistant's next message.

        Raises:
            UsageError: the episode has not begun, or is over.
            BackendError: a fault spoilt the episode, so it has no reward.
        """
        playing, watched = self._playing, self._watched
        if playing is None or watched is None or self.over:
            raise UsageError("There is no episode to step in. Send a reset first.")
        self._asked.clear()
        before = len(watched.steps)
        self._said.put_nowait(message)
        await self._settled()
        self.turns += 1
        step = watched.steps[-1] if len(watched.steps) > before else EnvStep()
        if not playing.done():
            self._rewarded += step.reward
            return Response(step.messages, results=step.results, reward=step.reward or None)
        played = await playing
        if played.masked:
            raise BackendError(_lost(played))
        self.stop = played.stop
        reward = played.reward - self._rewarded
        return Response(step.messages, results=step.results, reward=reward, stop=played.stop)

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: SamplingParams
    ) -> Completion:
        """What the loop asks the model; the client's next message answers."""
        self._asked.set()
        return Completion(await self._said.get())

    async def close(self) -> None:
        """End the episode, with its environment."""
        playing, self._playing = self._playing, None
        if playing is not None:
            playing.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({playing})

    async def _play(self) -> Trajectory:
        episode = self._runtime.episode(self.sample, 0.0, 0, self._session, None)
        make_env = episode.make_env

        def watched(sample: Sample, context: Any) -> Env:
            self._watched = _Watched(make_env(sample, context))
            return self._watched

        played = await self._runtime.chat_rollout(replace(episode, make_env=watched), self)
        scored: Trajectory = await self._runtime.rewards.score_trajectory(played)
        return scored

    def _beginning(self) -> Response:
        assert self._watched is not None
        assert self._watched.begun is not None
        return Response(self._watched.begun.messages, self._watched.begun.tools)

    async def _settled(self) -> None:
        """Wait until the model is asked, or the episode is over and scored."""
        assert self._playing is not None
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({asked, self._playing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()


class _Watched:
    """Remembers what an environment said."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.begun: EnvStart | None = None
        self.steps: list[EnvStep] = []

    async def start(self) -> EnvStart:
        self.begun = await ask_env(self._env, "start", EnvStart)
        return self.begun

    async def step(self, message: Message) -> EnvStep:
        step = await ask_env(self._env, "step", EnvStep, message)
        self.steps.append(step)
        return step

    async def close(self) -> None:
        await ask_env(self._env, "close", object)


def _lost(played: Trajectory) -> str:
    fault = next((fault for fault in played.faults if fault.masks), None)
    return f"The episode is lost, and has no reward: {fault.source}: {fault.message}" if fault else "The episode ended."
