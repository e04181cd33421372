"""The clock and the pauses of the service, which tests can replace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rlfactory_core.utils.backoff import backoff_s


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in seconds."""

    first_pause_s: float = 0.5  # the longest pause before the first retry; doubled with each further one
    longest_pause_s: float = 20.0
    health_s: float = 10.0  # for an endpoint's health check
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def back_off(self, failures: int) -> None:
        """Wait before the next try."""
        await self.sleep(backoff_s(failures, self.first_pause_s, self.longest_pause_s))
