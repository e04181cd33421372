"""The limits under which each tool is called, and the circuit breaker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlfactory_core.errors import ConfigError, nearest
from rlfactory_core.protocols import Tool
from rlfactory_core.settings import validate_section
from rlfactory_core.tools.settings import CachePlace, ToolLimits, ToolsConfig


def limits_by_tool(config: ToolsConfig, tools: Iterable[Tool]) -> Mapping[str, ToolLimits]:
    """Each tool's limits: the general ones, changed by the tool's own deadline and then by its overrides.

    The general setting of the cache is reduced to what a tool can have: nothing for a stateful tool, memory for one
    without a version, by which another run would recognise its results. An override that asks for more is an error.

    Raises:
        ConfigError: an override or ``disabled`` names a tool that does not exist, or an override an unknown key, or has
            a wrong value, or asks for a cache that the tool cannot have.
    """
    by_name = {tool.spec.name: tool for tool in tools}
    for name in config.overrides:
        if name not in by_name:
            raise ConfigError(f"tools.overrides.{name}: there is no such tool. {nearest(name, by_name)}")
    for name in config.disabled:
        if name not in by_name:
            raise ConfigError(f"tools.disabled: there is no tool '{name}'. {nearest(name, by_name)}")
    base = config.model_dump(include=set(ToolLimits.model_fields))
    return {name: _limits(tool, base, config.overrides.get(name, {})) for name, tool in by_name.items()}


def only_about(config: ToolsConfig, tools: Iterable[Tool]) -> ToolsConfig:
    """The section without the settings of single tools that are not among these."""
    names = {tool.spec.name for tool in tools}
    overrides = {name: override for name, override in config.overrides.items() if name in names}
    disabled = tuple(name for name in config.disabled if name in names)
    return config.model_copy(update={"overrides": overrides, "disabled": disabled})


def _limits(tool: Tool, base: Mapping[str, object], override: Mapping[str, object]) -> ToolLimits:
    name = tool.spec.name
    own = {} if tool.deadline_s is None else {"deadline_s": tool.deadline_s}
    limits = validate_section(ToolLimits, {**base, **own, **override}, prefix=f"tools.overrides.{name}")
    possible = _cache_place(tool, limits.cache)
    if possible != limits.cache and "cache" in override:
        why = (
            "it is stateful, so the same arguments may give another result"
            if tool.stateful
            else "it has no version by which another run could know its results; give it one, as in tool(…, version=…)"
        )
        raise ConfigError(f"tools.overrides.{name}.cache: got {limits.cache!r}, but {name} cannot have it: {why}.")
    return limits.model_copy(update={"cache": possible})


def _cache_place(tool: Tool, wanted: CachePlace) -> CachePlace:
    if tool.stateful:
        return "off"
    return "memory" if wanted == "disk" and not tool.version else wanted


class CircuitBreaker:
    """Refuses calls to a backend that is down, so that trajectories do not wait for it.

    It opens after ``failures`` infra faults in a row and then refuses all calls for ``reset_s`` seconds. After that it
    admits one call in each such period, until one succeeds. Times are seconds of one monotonic clock.
    """

    def __init__(self, failures: int, reset_s: float) -> None:
        self._limit = failures
        self._reset_s = reset_s
        self._failures = 0
        self._refuse_until = 0.0

    @property
    def has_tripped(self) -> bool:
        """Whether no call has succeeded since it opened, so that one which is admitted is a probe."""
        return self._failures >= self._limit

    def is_open(self, now: float) -> bool:
        """Whether a call would be refused now."""
        return self.has_tripped and now < self._refuse_until

    def admit(self, now: float) -> bool:
        """Whether a call may be made. If a probe is cancelled and never recorded, the next period admits another."""
        if self.is_open(now):
            return False
        if self.has_tripped:
            self._refuse_until = now + self._reset_s
        return True

    def record(self, failed: bool, now: float) -> None:
        """Record how an admitted call ended; ``failed`` means an infra fault."""
        self._failures = self._failures + 1 if failed else 0
        if self.has_tripped:
            self._refuse_until = now + self._reset_s
