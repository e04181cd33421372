"""An episode that a caller plays turn by turn, such as `rlfactory play` and `rlfactory serve`.

The run's own loop plays it, so limits, tools and rewards are those of training. Where the loop asks the model, the
caller decides when and what is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from rlfactory_core.context import ToolContext
from rlfactory_core.protocols import Env, EnvStart, EnvStep, Model, Request, Sampled
from rlfactory_core.rollout import ask_env
from rlfactory_core.tasks.runtime import TaskRuntime
from rlfactory_core.types import Message, Sample, Trajectory

Reply = Callable[[Request], Awaitable[Sampled | None]]
"""Answers a request in the model's place, or lets the model answer; as `protocols.Model.answer`."""


class StepwiseEpisode:
    """Call `begin` first, then `step` for each turn, and `close` last. The rollout asks it as its model.

    Args:
        runtime: the open task.
        session: a name that no other episode of the runtime has.
        model: has the chat format of the answers.
        kept: the answers to the first turns, which are not asked for again.
        scored: whether the trajectory is scored.
    """

    def __init__(
        self,
        runtime: TaskRuntime,
        sample: Sample,
        session: str,
        model: Model,
        kept: Sequence[Sampled] = (),
        *,
        scored: bool = True,
    ) -> None:
        self.runtime, self.sample = runtime, sample
        self.chat, self.release = model.chat, model.release
        self.answers: list[Sampled] = []  # one for each turn so far
        self.env: WatchedEnv | None = None  # None: not yet made, or an agent of the user's own plays
        self.trajectory: Trajectory | None = None  # once the episode has ended
        self._session, self._scored = session, scored
        self._kept = list(kept)
        self._replies: asyncio.Queue[Reply] = asyncio.Queue()
        self._waiting = 0  # unanswered requests; an agent can send several at once
        self._changed = asyncio.Event()
        self._playing: asyncio.Task[Trajectory] | None = None

    async def begin(self) -> None:
        """Play until the model is asked something new, or the episode has ended; raises what the environment raises."""
        self._playing = asyncio.create_task(self._play())
        await self._settled(0)

    async def step(self, reply: Reply) -> None:
        """Answer one request by ``reply``, and play on until it is asked the next one, or the episode has ended."""
        before = len(self.answers)
        self._replies.put_nowait(reply)
        await self._settled(before + 1)

    async def answer(self, request: Request) -> Sampled | None:
        """See `protocols.Model`: a kept answer, or what the next reply gives."""
        if self._kept:
            found: Sampled | None = self._kept.pop(0)
        else:
            self._waiting += 1
            self._changed.set()
            reply = await self._replies.get()
            self._waiting -= 1
            found = await reply(request)
        if found is not None:
            self.answers.append(found)
        self._changed.set()
        return found

    async def close(self) -> None:
        """End the episode, with its environment."""
        playing, self._playing = self._playing, None
        if playing is not None:
            playing.cancel()
            await asyncio.wait({playing})  # its error, if it has one, was raised where it was awaited

    async def _play(self) -> Trajectory:
        episode = self.runtime.episode(self.sample, 0.0, 0, self._session, None)
        make_env = episode.make_env

        def watched(sample: Sample, context: ToolContext) -> Env:
            self.env = WatchedEnv(make_env(sample, context))
            return self.env

        played = await self.runtime.rollout(replace(episode, make_env=watched), self)
        return await self.runtime.rewards.score_trajectory(played) if self._scored else played

    async def _settled(self, answers: int) -> None:
        """Wait until there are so many answers and the model is asked again, or until the episode has ended."""
        playing = self._playing
        assert playing is not None
        while not playing.done() and not (self._waiting and len(self.answers) >= answers):
            self._changed.clear()
            news = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({news, playing}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
        if playing.done():
            self.trajectory = playing.result()


@dataclass(slots=True)
class WatchedEnv:
    """Passes all calls on to an environment, and keeps its responses."""

    env: Env
    begun: EnvStart | None = None
    steps: list[EnvStep] = field(default_factory=list)

    async def start(self) -> EnvStart:
        self.begun = await ask_env(self.env, "start", EnvStart)
        return self.begun

    async def step(self, message: Message) -> EnvStep:
        step = await ask_env(self.env, "step", EnvStep, message)
        self.steps.append(step)
        return step

    async def close(self) -> None:
        await ask_env(self.env, "close", object)
