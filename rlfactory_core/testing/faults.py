"""Bad weather for tools: latencies, failures, hangs and floods, by seed."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.protocols import Tool
from rlfactory_core.tool_context import ToolContext

Latency = Callable[[random.Random], float]
_P99 = 2.326347874  # standard deviations above the median


class FaultInjector:
    """A `Tool` around another one that is slow, fails, never answers or answers too much.

    What happens to the n-th call depends on the seed and n alone. ``TaskBench.manager(lambda tool: FaultInjector(tool,
    0, error_rate=0.5))`` puts one around each of a task's tools.

    Args:
        latency: seconds of one call, drawn with the given random numbers: `steady`, `lognormal`, or a function of one's
            own such as ``lambda draw: draw.expovariate(2.0)``.
        error_rate: the share of calls that raise ``error``.
        hang_rate: the share of calls that wait for their cancellation.
        flood_rate: the share of calls that answer with ``flood_bytes`` of text and do not reach the tool.
    """

    def __init__(
        self,
        tool: Tool,
        seed: int,
        *,
        latency: Latency | None = None,
        error_rate: float = 0.0,
        error: Callable[[], Exception] = lambda: ToolUnavailableError("injected"),
        hang_rate: float = 0.0,
        flood_rate: float = 0.0,
        flood_bytes: int = 10_000_000,
    ) -> None:
        self.spec = tool.spec
        self.idempotent = tool.idempotent
        self.stateful = tool.stateful
        self.version = tool.version
        self.deadline_s = tool.deadline_s
        self._tool = tool
        self._draw = random.Random(seed)
        self._latency = latency
        self._error_rate = error_rate
        self._error = error
        self._hang_rate = hang_rate
        self._flood_rate = flood_rate
        self._flood_bytes = flood_bytes

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        seconds = self._latency(self._draw) if self._latency else 0.0
        fate = self._draw.random()
        await asyncio.sleep(seconds)
        if fate < self._hang_rate:
            await asyncio.Event().wait()
        if fate < self._hang_rate + self._error_rate:
            raise self._error()
        if fate < self._hang_rate + self._error_rate + self._flood_rate:
            return flood(self._flood_bytes)
        return await self._tool.call(arguments, context)

    async def close(self) -> None:
        await self._tool.close()


def steady(seconds: float) -> Latency:
    """Every call takes the same time."""
    return lambda draw: seconds


def lognormal(median_s: float, p99_s: float) -> Latency:
    """Half of the calls take less than ``median_s``, one in a hundred more than ``p99_s``: the shape of real services.

    Raises:
        ValueError: unless ``0 < median_s <= p99_s``.
    """
    if not 0 < median_s <= p99_s:
        raise ValueError(f"lognormal needs 0 < median_s <= p99_s; got median_s={median_s:g} and p99_s={p99_s:g}.")
    mu, sigma = math.log(median_s), math.log(p99_s / median_s) / _P99
    return lambda draw: draw.lognormvariate(mu, sigma)


def flood(size_bytes: int) -> str:
    """A text of as many bytes, in lines."""
    line = "All work and no play makes a long answer.\n"
    return (line * (size_bytes // len(line) + 1))[:size_bytes]
