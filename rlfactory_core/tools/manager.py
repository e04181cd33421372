"""Calls tools: everything between a call that the model wrote and the result that it sees."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from rlfactory_core.cache import cache_root
from rlfactory_core.context import ToolContext
from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import Tool
from rlfactory_core.tools.attempt import Answer, attempt, close_all, unavailable
from rlfactory_core.tools.cache import AnswerCache, DiskCache, InFlightCall, MemoryCache, answer_key
from rlfactory_core.tools.limits import CircuitBreaker, limits_by_tool
from rlfactory_core.tools.settings import CachePlace, ToolLimits, ToolsConfig
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
        self.tool = tool
        self.limits = limits
        self.retries = limits.retries if tool.idempotent else 0
        self.checker = ArgumentChecker(tool.spec)
        self.breaker = CircuitBreaker(limits.breaker_failures, limits.breaker_reset_s)
        self.slots = asyncio.Semaphore(limits.concurrency)
        self.cache = cache
        self.in_flight: dict[str, InFlightCall] = {}  # by cache key
        self.last_reason = ""  # of an infra fault
        self.probe: asyncio.Future[None] | None = None  # of the call that finds out whether the backend is back

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Calls that come meanwhile wait."""
        probe = self.probe = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            probe.set_result(None)
            self.probe = None

    def tripped(self) -> Answer:
        return unavailable(self.tool.spec.name, _TRIPPED + self.last_reason, attempts=0)


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
        self._caches = _caches(limits.values())
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
        """Make semaphores for a new event loop, because they belong to one loop."""
        loop = asyncio.get_running_loop()
        if self._watchdog is None or self._watchdog.ended or self._loop is not loop:
            if self._watchdog is not None:
                self._watchdog.close()
            self._watchdog = Watchdog(lambda blocked: _log.warning("%s", blocked))
        if self._loop is not loop:
            self._loop = loop
            loop.set_default_executor(DaemonExecutor())
            self._total = asyncio.Semaphore(self._total_concurrency)
            for managed in self._tools.values():
                managed.slots = asyncio.Semaphore(managed.limits.concurrency)
                managed.in_flight, managed.probe = {}, None

    async def _call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        started = time.perf_counter()
        managed = self._tools.get(call.name)
        problem = self._problem(call, managed)
        if managed is not None and call.arguments is not None and problem is None:
            problem = await self._wrong_arguments(managed, call.arguments)
        if managed is None or call.arguments is None or problem is not None:
            answer = Answer(f"Error: {problem}", FaultKind.POLICY, attempts=0)
        elif managed.cache is None or (key := answer_key(managed.tool, call.arguments)) is None:
            answer = await self._run(managed, call.arguments, context, managed.limits.deadline_s)
        else:
            answer = await self._shared(managed, managed.cache, key, call.arguments, context)
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
            size_bytes=len(text) if text.isascii() else len(text.encode()),
            reason=answer.reason,
        )

    def _problem(self, call: ToolCall, managed: _Managed | None) -> str | None:
        """Why the call is refused without running the tool, or None."""
        if call.error is not None:
            return call.error
        if managed is None:
            return unknown_tool(call.name, self._tools)
        return "the call has no arguments" if call.arguments is None else None

    async def _wrong_arguments(self, managed: _Managed, arguments: Mapping[str, Any]) -> str | None:
        """Why the arguments are refused, or None. What takes long is done in a thread, so that other calls go on."""
        if managed.checker.plainly_fit(arguments):
            return None
        checking = asyncio.to_thread(managed.checker.problem, arguments)
        try:
            problem = await asyncio.wait_for(checking, managed.limits.deadline_s)
        except TimeoutError:
            problem = "the arguments take too long to be checked; use simpler ones"
        return None if problem is None else f"wrong arguments for {managed.tool.spec.name}: {problem}"

    async def _shared(
        self, managed: _Managed, cache: AnswerCache, key: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> Answer:
        """The answer from the cache, from the same call in flight, or from the tool.

        If the call in flight is cancelled or ends with an infra fault, the next call that waits for it calls the tool,
        with the rest of its own time.
        """
        left = managed.limits.deadline_s
        clock = asyncio.get_running_loop().time
        while (other := managed.in_flight.get(key)) is not None:
            joined = clock()
            answer = await other.wait()
            left -= max(0.0, clock() - max(joined, other.started))
            late = left < _WORTHWHILE * managed.limits.deadline_s
            if answer is not None and (late or answer.fault is not FaultKind.INFRA):
                return replace(answer, attempts=0, cached=True)
        own = managed.in_flight[key] = InFlightCall()
        answer = None
        try:
            known = await cache.get(key)
            if known is not None:
                answer = Answer(known, attempts=0, cached=True)
            else:
                answer = await self._run(managed, arguments, context, left, own)
                if answer.fault is None:
                    cache.put(key, managed.tool.spec.name, clean(answer.content))
            return answer
        finally:
            del managed.in_flight[key]
            own.end(answer)

    async def _run(
        self,
        managed: _Managed,
        arguments: Mapping[str, Any],
        context: ToolContext,
        seconds: float,
        in_flight: InFlightCall | None = None,
    ) -> Answer:
        """The tool's own answer, after as many attempts as fit into ``seconds`` from the first one on."""
        clock = asyncio.get_running_loop().time
        if managed.probe is not None:
            await asyncio.wait((managed.probe,))
        if managed.breaker.is_open(clock()):
            return managed.tripped()
        async with managed.slots, self._total:
            started = now = clock()
            probes = managed.breaker.has_tripped
            if not managed.breaker.admit(now):
                return managed.tripped()
            with managed.probing() if probes else nullcontext():
                if in_flight is not None:
                    in_flight.started = started
                attempts = 0
                while True:
                    attempts += 1
                    answer = await attempt(managed.tool, arguments, context, started + seconds - now)
                    now = clock()
                    managed.breaker.record(answer.fault is FaultKind.INFRA, now)
                    managed.last_reason = answer.reason or managed.last_reason
                    if answer.fault is not FaultKind.INFRA or managed.breaker.is_open(now):
                        break
                    pause = backoff_s(attempts, *_BACKOFF_S)
                    if attempts > managed.retries or now + pause >= started + seconds:
                        break
                    await asyncio.sleep(pause)
                    now = clock()
                return answer if attempts == 1 else replace(answer, attempts=attempts)


def _caches(limits: Iterable[ToolLimits]) -> dict[CachePlace, AnswerCache]:
    """One cache for each place that is in use; the tools share them."""
    places = {each.cache for each in limits}
    caches: dict[CachePlace, AnswerCache] = {}
    if "memory" in places:
        caches["memory"] = MemoryCache()
    if "disk" in places:
        caches["disk"] = DiskCache(cache_root() / "tools")
    return caches
