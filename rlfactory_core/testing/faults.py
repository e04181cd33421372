"""Bad weather for tools: latencies, failures and hangs, by seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.protocols import Tool
from rlfactory_core.tool_context import ToolContext


class FaultInjector:
    """A `Tool` around another one that is slow, fails or never answers.

    What happens to the n-th call depends on the seed and n alone.

    Args:
        latency: seconds of one call, drawn with the given random numbers, for example
            ``lambda draw: draw.lognormvariate(-3.0, 1.6)``.
        error_rate: the share of calls that raise ``error``.
        hang_rate: the share of calls that wait for their cancellation.
    """

    def __init__(
        self,
        tool: Tool,
        seed: int,
        *,
        latency: Callable[[random.Random], float] | None = None,
        error_rate: float = 0.0,
        error: Callable[[], Exception] = lambda: ToolUnavailableError("injected"),
        hang_rate: float = 0.0,
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

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        seconds = self._latency(self._draw) if self._latency else 0.0
        fate = self._draw.random()
        await asyncio.sleep(seconds)
        if fate < self._hang_rate:
            await asyncio.Event().wait()
        if fate < self._hang_rate + self._error_rate:
            raise self._error()
        return await self._tool.call(arguments, context)

    async def close(self) -> None:
        await self._tool.close()
