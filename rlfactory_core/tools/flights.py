"""The same call, asked for by several trajectories at the same moment, runs once: a GRPO group often begins alike."""

from __future__ import annotations

import asyncio
import math

from rlfactory_core.tools.attempt import Answer


class Flight:
    """A call under way, for those who wait for its answer."""

    def __init__(self) -> None:
        self.started = math.inf  # when its deadline began to run, on the event loop's clock
        self._over: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> Answer | None:
        """Its answer; None where it was cancelled. Whoever waits can be cancelled without harm to it."""
        return await asyncio.shield(self._over)

    def end(self, answer: Answer | None) -> None:
        self._over.set_result(answer)
