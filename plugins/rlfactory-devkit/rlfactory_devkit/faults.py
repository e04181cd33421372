"""Injects faults into tools: latencies, failures, hangs and very long answers, by seed."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory_core import ToolContext
from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.protocols import Tool
from rlfactory_devkit.wrappers import ToolWrapper

Latency = Callable[[random.Random], float]
_LINE = "All work and no play makes a long answer.\n"
_P99 = 2.326347874  # standard deviations above the median


def _unavailable() -> Exception:
    return ToolUnavailableError("injected")


@dataclass(frozen=True, slots=True)
class InjectedFaults:
    """The latency of a tool's calls, and the shares of calls that fail; the shares add up to at most 1."""

    latency: Latency | None = None  # draws the seconds of one call: `steady`, `lognormal` or your own function
    error_rate: float = 0.0  # the share of calls that raise ``error``
    error: Callable[[], Exception] = _unavailable
    hang_rate: float = 0.0  # the share of calls that wait until they are cancelled
    flood_rate: float = 0.0  # the share of calls that answer with ``flood_bytes`` of text and do not reach the tool
    flood_bytes: int = 10_000_000


class FaultInjector(ToolWrapper):
    """Wraps a `Tool` so that it is slow, fails, never answers or answers too much.

    What happens to the n-th call depends only on the seed and on n.
    ``TaskBench.manager(lambda tool: FaultInjector(tool, 0, InjectedFaults(error_rate=0.5)))`` wraps each of a task's
    tools.
    """

    def __init__(self, tool: Tool, seed: int, faults: InjectedFaults) -> None:
        super().__init__(tool)
        self._faults = faults
        self._draw = random.Random(seed)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        faults = self._faults
        seconds = faults.latency(self._draw) if faults.latency else 0.0
        fate = self._draw.random()
        await asyncio.sleep(seconds)
        if fate < faults.hang_rate:
            await asyncio.Event().wait()
        if fate < faults.hang_rate + faults.error_rate:
            raise faults.error()
        if fate < faults.hang_rate + faults.error_rate + faults.flood_rate:
            return (_LINE * (faults.flood_bytes // len(_LINE) + 1))[: faults.flood_bytes]
        return await super().call(arguments, context)


def steady(seconds: float) -> Latency:
    """Every call takes the same time."""
    return lambda draw: seconds


def lognormal(median_s: float, p99_s: float) -> Latency:
    """Half of the calls take less than ``median_s``, one in a hundred more than ``p99_s``, as with real services.

    Raises:
        ValueError: unless ``0 < median_s <= p99_s``.
    """
    if not 0 < median_s <= p99_s:
        raise ValueError(f"lognormal needs 0 < median_s <= p99_s; got median_s={median_s:g} and p99_s={p99_s:g}.")
    mu, sigma = math.log(median_s), math.log(p99_s / median_s) / _P99
    return lambda draw: draw.lognormvariate(mu, sigma)
