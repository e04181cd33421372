"""Episodes that take their turns together, so that whatever they share is shared at every turn."""

from __future__ import annotations

import asyncio

from rlfactory_core.protocols import Env, EnvStart, EnvStep
from rlfactory_core.types import Message


class Lockstep:
    """A barrier for a number of episodes, of which each may leave; ``around`` as `TaskBench.episode` takes it."""

    def __init__(self, episodes: int) -> None:
        self._in, self._waiting = episodes, 0
        self._round = asyncio.Event()

    def around(self, env: Env) -> Env:
        return _InStep(env, self)

    async def meet(self) -> None:
        """Wait until all that are left are here."""
        self._waiting += 1
        mine = self._round
        self._go()
        await mine.wait()

    def leave(self) -> None:
        self._in -= 1
        self._go()

    def _go(self) -> None:
        if self._waiting >= self._in:
            self._waiting = 0
            self._round.set()
            self._round = asyncio.Event()


class _InStep:
    """Starts, then waits for the others before each step."""

    def __init__(self, env: Env, lockstep: Lockstep) -> None:
        self._env, self._lockstep = env, lockstep

    async def start(self) -> EnvStart:
        start = await self._env.start()
        await self._lockstep.meet()
        return start

    async def step(self, message: Message) -> EnvStep:
        await self._lockstep.meet()
        return await self._env.step(message)

    async def close(self) -> None:
        self._lockstep.leave()
        await self._env.close()
