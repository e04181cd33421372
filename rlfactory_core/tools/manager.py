"""Calls tools: everything between a call that the model wrote and the result that it sees."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlfactory_core.cache import cache_root
from rlfactory_core.context import ToolContext
from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import Tool
from rlfactory_core.tools.attempt import Answer, attempt, close_all, unavailable
from rlfactory_core.tools.bounded_validator import TooMuchWorkError
from rlfactory_core.tools.cache import AnswerCache, DiskCache, MemoryCache, answer_key
from rlfactory_core.tools.limits import CircuitBreaker, limits_by_tool
from rlfactory_core.tools.settings import ToolLimits, ToolsConfig
from rlfactory_core.tools.validation import ArgumentChecker, unknown_tool
from rlfactory_core.tools.watchdog import Watchdog
from rlfactory_core.types import FaultKind, ToolCall, ToolResult, ToolSpec
from rlfactory_core.utils.aio import gather_all
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_core.utils.text import CountTokens, clean, truncate
from rlfactory_core.utils.threads import DaemonExecutor

_log = logging.getLogger(__name__)

_TRIPPED = "no call is made for a while, because too many failed in a row, the last with: "
_BACKOFF_S = (0.1, 2.0)  # the first pause and the longest, before jitter
_WORTHWHILE = 0.1  # share of the deadline; with less time left, a shared infra fault is returned without another try


class _Managed:
    """A tool and the manager's state for it."""

    def __init__(self, tool: Tool, limits: ToolLimits, cache: AnswerCache | None) -> None:
        self.tool, self.limits = tool, limits
        self._retries = limits.retries if tool.idempotent else 0
        self._checker = ArgumentChecker(tool.spec)
        self.breaker = CircuitBreaker(limits.breaker_failures, limits.breaker_reset_s)
        self.cache = cache
        self._last_reason = ""  # of an infra fault
        self.bind()

    def bind(self) -> None:
        """Begin on an event loop, to which semaphores and futures belong."""
        self._slots = asyncio.Semaphore(self.limits.concurrency)
        self._in_flight: dict[str, asyncio.Future[Answer | None]] = {}  # by cache key; None: it was cancelled
        self._probe: asyncio.Future[None] | None = None  # of the call that finds out whether the backend is back

    async def wrong_arguments(self, arguments: Mapping[str, Any]) -> str | None:
        """Why the arguments are refused, or None. What takes long is done in a thread, so that other calls go on."""
        try:
            problem = self._checker.problem(arguments, quick=True)
        except TooMuchWorkError:
            checking = asyncio.to_thread(self._checker.problem, arguments)
            try:
                problem = await asyncio.wait_for(checking, self.limits.deadline_s)
            except TimeoutError:
                problem = "the arguments take too long to be checked; use simpler ones"
        return None if problem is None else f"wrong arguments for {self.tool.spec.name}: {problem}"

    async def shared(
        self, cache: AnswerCache, key: str, arguments: Mapping[str, Any], context: ToolContext, total: asyncio.Semaphore
    ) -> Answer:
        """The answer from the cache, from the same call in flight, or from the tool.

        If the call in flight is cancelled or ends with an infra fault, the next call that waits for it calls the tool.
        """
        clock, seconds = asyncio.get_running_loop().time, self.limits.deadline_s
        late = clock() + (1 - _WORTHWHILE) * seconds
        while (other := self._in_flight.get(key)) is not None:
            answer = await asyncio.shield(other)
            if answer is not None and (answer.fault is not FaultKind.INFRA or clock() > late):
                return replace(answer, attempts=0, cached=True)
        flight = self._in_flight[key] = asyncio.Future()
        answer = None
        try:
            if (known := await cache.get(key)) is not None:
                answer = Answer(known, attempts=0, cached=True)
            else:
                answer = await self.run(arguments, context, total)
                if answer.fault is None:
                    cache.put(key, self.tool.spec.name, clean(answer.content))
            return answer
        finally:
            del self._in_flight[key]
            flight.set_result(answer)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext, total: asyncio.Semaphore) -> Answer:
        """The tool's own answer, after as many attempts as fit into its deadline.

        Args:
            total: limits the calls of all tools.
        """
        clock = asyncio.get_running_loop().time
        if self._probe is not None:
            await asyncio.wait((self._probe,))
        tripped = unavailable(self.tool.spec.name, _TRIPPED + self._last_reason, attempts=0)
        if self.breaker.is_open(clock()):
            return tripped
        async with self._slots, total:
            now = clock()
            end = now + self.limits.deadline_s
            if not self.breaker.admit(now):
                return tripped
            # Calls that come while the backend is probed wait.
            probe = self._probe = asyncio.Future[None]() if self.breaker.has_tripped else None
            try:
                attempts = 0
                while True:
                    attempts += 1
                    answer = await attempt(self.tool, arguments, context, end - now)
                    now = clock()
                    self.breaker.record(answer.fault is FaultKind.INFRA, now)
                    self._last_reason = answer.reason or self._last_reason
                    is_over = answer.fault is not FaultKind.INFRA or self.breaker.is_open(now)
                    pause = backoff_s(attempts, *_BACKOFF_S)
                    if is_over or attempts > self._retries or now + pause >= end:
                        return answer if attempts == 1 else replace(answer, attempts=attempts)
                    await asyncio.sleep(pause)
                    now = clock()
            finally:
                if probe is not None:
                    probe.set_result(None)
                    self._probe = None


class DefaultToolManager:
    """Owns the tools' life cycle and calls them within the limits of `config.ToolLimits`.

    A deadline covers all attempts of a call and starts when the call gets its slot, so that waiting for other calls
    does not count. A manager can be used from one event loop at a time.

    Args:
        tools: functions marked with ``@tool``, or other implementations of `protocols.Tool`.
        config: the run's ``tools`` section.
        count_tokens: the model's token count, for the limit on results. Without it, four bytes count as a token.

    Raises:
        UsageError: something is not a tool, two tools have one name, or a schema is invalid.
        ConfigError: an override does not fit, or ``disabled`` names none of the tools.
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
        self._owned = tuple(tools)
        tools = [item for item in tools if item.spec.name not in config.disabled]
        places = {each.cache for each in limits.values()}
        self._caches: dict[str, AnswerCache] = {"memory": MemoryCache()} if "memory" in places else {}
        if "disk" in places:
            self._caches["disk"] = DiskCache(cache_root() / "tools")
        self._tools = {
            item.spec.name: _Managed(item, limits[item.spec.name], self._caches.get(limits[item.spec.name].cache))
            for item in tools
        }
        self._specs = tuple(item.spec for item in tools)
        self._total_concurrency = config.total_concurrency
        self._max_refusal_tokens = config.max_result_tokens
        self._count_tokens = count_tokens
        self._loop: asyncio.AbstractEventLoop | None = None
        self._total = asyncio.Semaphore(config.total_concurrency)
        self._watchdog: Watchdog | None = None

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    async def invoke(self, calls: Sequence[ToolCall], context: ToolContext) -> tuple[ToolResult, ...]:
        """Make all calls of a turn in parallel; returns the results in the calls' order.

        A wrong call by the model becomes a result and never an exception.
        """
        self._bind()
        if len(calls) == 1:
            return (await self._call(calls[0], context),)
        return tuple(await gather_all(self._call(call, context) for call in calls))

    async def close(self) -> None:
        """Close all tools, also if one of them fails to close or does not end."""
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None
        await close_all(self._owned)
        for cache in self._caches.values():
            await cache.close()

    def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        if self._watchdog is None or self._watchdog.ended or self._loop is not loop:
            if self._watchdog is not None:
                self._watchdog.close()
            self._watchdog = Watchdog(_log.warning)
        if self._loop is not loop:
            self._loop = loop
            loop.set_default_executor(DaemonExecutor())
            self._total = asyncio.Semaphore(self._total_concurrency)
            for managed in self._tools.values():
                managed.bind()

    async def _call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        started = time.perf_counter()
        managed, arguments, problem = self._tools.get(call.name), call.arguments, call.error
        if problem is None and managed is None:
            problem = unknown_tool(call.name, self._tools)
        elif problem is None and managed is not None and arguments is not None:
            problem = await managed.wrong_arguments(arguments)
        if managed is None or arguments is None or problem is not None:
            problem = problem or "the call has no arguments"
            answer = Answer(f"Error: {problem}", FaultKind.POLICY, attempts=0)
        elif managed.cache is None or (key := answer_key(managed.tool, arguments)) is None:
            answer = await managed.run(arguments, context, self._total)
        else:
            answer = await managed.shared(managed.cache, key, arguments, context, self._total)
        text = clean(answer.content)
        max_tokens = managed.limits.max_result_tokens if managed else self._max_refusal_tokens
        content = truncate(text, max_tokens, self._count_tokens)
        return ToolResult(
            call_id=call.id,
            name=call.name,
            content=content,
            fault=answer.fault,
            latency_s=time.perf_counter() - started,
            attempts=answer.attempts,
            cached=answer.cached,
            truncated=content is not text,
            size_bytes=len(text.encode()),
            reason=answer.reason,
        )
