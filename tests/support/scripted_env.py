"""Environments of one episode whose steps are given."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from rlfactory_core.errors import BackendError
from rlfactory_core.protocols import EnvStart, EnvStep
from rlfactory_core.rollout import Episode
from rlfactory_core.types import Message, StopReason
from rlfactory_core.utils.seeds import derive_seed


class Steps:
    """A custom environment that gives these steps."""

    def __init__(self, *steps: EnvStep) -> None:
        self.steps = iter(steps)

    async def start(self) -> EnvStart:
        return EnvStart((Message("user", "Go."),))

    async def step(self, message: Message) -> EnvStep:
        return next(self.steps)

    async def close(self) -> None: ...


class Gone(Steps):
    """Its server is gone when ``method`` is called; or it never answers."""

    def __init__(self, method: str, *, hangs: bool = False) -> None:
        super().__init__(EnvStep(stop=StopReason.ENV_DONE, reward=1.0))
        self.method, self.hangs = method, hangs

    async def start(self) -> EnvStart:
        await self._reach("start")
        return await super().start()

    async def step(self, message: Message) -> EnvStep:
        await self._reach("step")
        return await super().step(message)

    async def close(self) -> None:
        await self._reach("close")

    async def _reach(self, method: str) -> None:
        if method == self.method and self.hangs:
            await asyncio.Event().wait()
        if method == self.method:
            raise BackendError("the game server is gone")


def attempts_at(episode: Episode, number: int) -> list[Episode]:
    """The attempts of a group, as `TaskRuntime.play` makes them."""
    seeds = (derive_seed(episode.seed, episode.sample.id, i) for i in range(number))
    return [replace(episode, attempt=i, seed=seed, session=f"{episode.session}/{i}") for i, seed in enumerate(seeds)]
