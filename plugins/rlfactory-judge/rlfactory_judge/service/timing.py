"""The clock and the pauses of the service, in one place so that tests can have others."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """How time passes, in seconds."""

    first_pause_s: float = 0.5  # the longest pause before the first retry; doubled with each further one
    longest_pause_s: float = 20.0
    health_s: float = 10.0  # for an endpoint to say that it is well
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def back_off(self, failures: int) -> None:
        """Wait before the next try. Full jitter: callers that failed together do not come back together."""
        longest = min(self.longest_pause_s, self.first_pause_s * 2.0 ** (failures - 1))
        await self.sleep(random.uniform(0.0, longest))
