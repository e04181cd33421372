"""The one tool-call contract: everything between a call that the model wrote and the result that it sees."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.config import ToolsConfig
from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.protocols import Tool
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.tools.attempt import Answer, attempt
from rlfactory_core.tools.limits import CircuitBreaker, Limits, limits_by_tool
from rlfactory_core.tools.results import CountTokens, clean, truncate
from rlfactory_core.tools.validation import ArgumentChecker, shown
from rlfactory_core.types import FaultKind, ToolCall, ToolResult, ToolSpec

_log = logging.getLogger(__name__)

_BACKOFF_S = (0.1, 2.0)  # the first pause and the longest, before jitter
_CACHE_ENTRIES = 8192  # a tool; the oldest go first
_MAX_NAME = 64  # characters of an unknown name that are quoted and compared


class _Managed:
    """A tool with what is kept for it."""

    def __init__(self, tool: Tool, limits: Limits) -> None:
        self.tool = tool
        self.limits = limits
        self.retries = limits.retries if tool.idempotent else 0
        self.checker = ArgumentChecker(tool.spec)
        self.breaker = CircuitBreaker(limits.breaker_failures, limits.breaker_reset_s)
        self.slots = asyncio.Semaphore(limits.concurrency)
        cached = limits.cache != "off" and not tool.stateful
        self.cache: OrderedDict[str, Answer] | None = OrderedDict() if cached else None


class DefaultToolManager:
    """Owns the tools' life cycle and calls them as `config.ToolLimits` says.

    A deadline runs from the moment at which a call has its slot, over all its attempts: waiting behind others is not
    the tool's fault. Use one manager from one event loop at a time.

    Args:
        tools: made with ``@tool``, or anything that does what `protocols.Tool` says.
        config: the run's ``tools`` section; read here once.
        count_tokens: the model's own count, for the limit on results. Without it a token is taken as four bytes.

    Raises:
        UsageError: something that is not a tool, two tools of one name, or a schema that is not one.
        ConfigError: an override that does not fit.
    """

    def __init__(
        self, tools: Sequence[Tool], config: ToolsConfig | None = None, *, count_tokens: CountTokens | None = None
    ) -> None:
        config = config or ToolsConfig()
        for item in tools:
            if not isinstance(item, Tool):
                raise UsageError(f"{item!r} is not a tool; mark the function with @tool.")
        names = [item.spec.name for item in tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"two tools have the name {twice[0]!r}; give one of them another with tool(fn, name=…).")
        limits = limits_by_tool(config, tools)
        self._tools = {item.spec.name: _Managed(item, limits[item.spec.name]) for item in tools}
        self._specs = tuple(item.spec for item in tools)
        self._total_concurrency = config.total_concurrency
        self._max_refusal_tokens = config.max_result_tokens
        self._count_tokens = count_tokens
        self._jitter = random.Random()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._total = asyncio.Semaphore(config.total_concurrency)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    async def invoke(self, calls: Sequence[ToolCall], context: ToolContext) -> tuple[ToolResult, ...]:
        """All calls of a turn in parallel; results in the calls' order. Never raises for what the model wrote."""
        self._bind()
        if len(calls) == 1:
            return (await self._call(calls[0], context),)
        # With return_exceptions, gather waits for every call, also when it is cancelled.
        results = await asyncio.gather(*(self._call(call, context) for call in calls), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return tuple(result for result in results if isinstance(result, ToolResult))

    async def close(self) -> None:
        """Close all tools; one that fails to does not keep the others from it."""
        names, closings = tuple(self._tools), (managed.tool.close() for managed in self._tools.values())
        for name, outcome in zip(names, await asyncio.gather(*closings, return_exceptions=True), strict=True):
            if isinstance(outcome, Exception):
                _log.warning("tool %s did not close", name, exc_info=outcome)

    def _bind(self) -> None:
        """Semaphores belong to the event loop in which they were first waited for."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._total = asyncio.Semaphore(self._total_concurrency)
            for managed in self._tools.values():
                managed.slots = asyncio.Semaphore(managed.limits.concurrency)

    async def _call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        started = time.perf_counter()
        managed = self._tools.get(call.name)
        attempts, cached = 0, False
        problem = self._problem(call, managed)
        if managed is None or call.arguments is None or problem is not None:
            answer = Answer(f"Error: {problem}", FaultKind.POLICY)
        else:
            key = _cache_key(call.arguments) if managed.cache is not None else None
            known = managed.cache.get(key) if managed.cache is not None and key is not None else None
            if known is not None:
                answer, cached = known, True
            else:
                answer, attempts = await self._run(managed, call.arguments, context)
                if key is not None and answer.fault is None:
                    _remember(managed, key, answer)
        text = clean(answer.content)
        max_tokens = managed.limits.max_result_tokens if managed else self._max_refusal_tokens
        content = truncate(text, max_tokens, self._count_tokens)
        return ToolResult(
            call_id=call.id,
            name=call.name,
            content=content,
            fault=answer.fault,
            latency_s=time.perf_counter() - started,
            attempts=attempts,
            cached=cached,
            truncated=content is not text,
            size_bytes=len(text) if text.isascii() else len(text.encode()),
        )

    def _problem(self, call: ToolCall, managed: _Managed | None) -> str | None:
        """Why the call is refused without being run; None where it is not."""
        if call.error is not None:
            return call.error
        if managed is None:
            name = call.name[:_MAX_NAME]
            return f"there is no tool {shown(name)}. {nearest(name, self._tools)}"
        if call.arguments is None:
            return "the call has no arguments"
        problem = managed.checker.problem(call.arguments)
        return None if problem is None else f"wrong arguments for {call.name}: {problem}"

    async def _run(self, managed: _Managed, arguments: Mapping[str, Any], context: ToolContext) -> tuple[Answer, int]:
        """The answer, and after how many attempts."""
        refused = Answer(f"Error: {managed.tool.spec.name} is not available now.", FaultKind.INFRA)
        clock = asyncio.get_running_loop().time
        if managed.breaker.is_open(clock()):
            return refused, 0
        async with managed.slots, self._total:
            if not managed.breaker.admit(clock()):
                return refused, 0
            ends = clock() + managed.limits.deadline_s
            attempts = 0
            while True:
                attempts += 1
                answer = await attempt(managed.tool, arguments, context, ends - clock())
                managed.breaker.record(answer.fault is FaultKind.INFRA, clock())
                pause = self._pause(attempts)
                spent = attempts > managed.retries or clock() + pause >= ends or managed.breaker.is_open(clock())
                if answer.fault is not FaultKind.INFRA or spent:
                    return answer, attempts
                await asyncio.sleep(pause)

    def _pause(self, attempts: int) -> float:
        """Full jitter: callers that failed together do not come back together."""
        first, longest = _BACKOFF_S
        return self._jitter.uniform(0.0, min(longest, first * 2.0 ** (attempts - 1)))


def _cache_key(arguments: Mapping[str, Any]) -> str | None:
    """The arguments' canonical text; None where they have none."""
    try:
        return json.dumps(dict(arguments), sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return None


def _remember(managed: _Managed, key: str, answer: Answer) -> None:
    if managed.cache is not None:
        managed.cache[key] = answer
        if len(managed.cache) > _CACHE_ENTRIES:
            managed.cache.popitem(last=False)
