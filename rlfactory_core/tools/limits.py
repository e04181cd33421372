"""How each tool is called: the configuration's limits as run-time objects, and the circuit breaker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rlfactory_core.config import CachePlace, ToolLimits, ToolsConfig
from rlfactory_core.config_load import validate_section
from rlfactory_core.errors import ConfigError, nearest
from rlfactory_core.protocols import Tool


@dataclass(frozen=True, slots=True)
class Limits:
    """One tool's limits; see `config.ToolLimits` for what each of them means."""

    deadline_s: float
    retries: int
    concurrency: int
    max_result_tokens: int
    cache: CachePlace
    breaker_failures: int
    breaker_reset_s: float


def limits_by_tool(config: ToolsConfig, tools: Iterable[Tool]) -> Mapping[str, Limits]:
    """Each tool's limits: those of all tools, then the tool's own deadline, then its overrides.

    The general switch leaves stateful tools without a cache, and keeps in memory what has no version to be known again
    by in another run; who asks for the cache of such a tool by name is told so.

    Raises:
        ConfigError: an override of a tool that does not exist, with an unknown key or a value that does not fit, or
            for a cache that the tool cannot have.
    """
    by_name = {tool.spec.name: tool for tool in tools}
    for name in config.overrides:
        if name not in by_name:
            raise ConfigError(f"tools.overrides.{name}: there is no such tool. {nearest(name, by_name)}")
    base = config.model_dump(include=set(ToolLimits.model_fields))
    return {name: _limits(tool, base, config.overrides.get(name, {})) for name, tool in by_name.items()}


def _limits(tool: Tool, base: Mapping[str, object], override: Mapping[str, object]) -> Limits:
    name = tool.spec.name
    own = {} if tool.deadline_s is None else {"deadline_s": tool.deadline_s}
    checked = validate_section(ToolLimits, {**base, **own, **override}, prefix=f"tools.overrides.{name}")
    limits = Limits(**checked.model_dump())
    possible = _cache_place(tool, limits.cache)
    if possible != limits.cache and "cache" in override:
        why = (
            "it is stateful, so the same arguments may give another result"
            if tool.stateful
            else "it has no version by which another run could know its results; give it one, as in tool(…, version=…)"
        )
        raise ConfigError(f"tools.overrides.{name}.cache: got {limits.cache!r}, but {name} cannot have it: {why}.")
    return replace(limits, cache=possible)


def _cache_place(tool: Tool, wanted: CachePlace) -> CachePlace:
    if tool.stateful:
        return "off"
    return "memory" if wanted == "disk" and not tool.version else wanted


class CircuitBreaker:
    """Spares a backend that is down, and the trajectories the wait for it.

    It opens after ``failures`` infra faults in a row. Then nothing passes for ``reset_s`` seconds, and after that one
    call at a time: the first good answer closes it. Times are those of any one monotonic clock, in seconds.
    """

    def __init__(self, failures: int, reset_s: float) -> None:
        self._limit = failures
        self._reset_s = reset_s
        self._failures = 0
        self._refuse_until = 0.0

    def is_open(self, now: float) -> bool:
        """Whether a call would be refused now."""
        return self._failures >= self._limit and now < self._refuse_until

    def admit(self, now: float) -> bool:
        """Ask for leave to call. A probe that never reports back (cancelled) is followed by the next one."""
        if self._failures < self._limit:
            return True
        if now < self._refuse_until:
            return False
        self._refuse_until = now + self._reset_s
        return True

    def record(self, failed: bool, now: float) -> None:
        """Say how an admitted call ended; ``failed`` means an infra fault."""
        self._failures = self._failures + 1 if failed else 0
        if self._failures >= self._limit:
            self._refuse_until = now + self._reset_s
