"""How each tool is called: the configuration's limits as run-time objects, and the circuit breaker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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

    Raises:
        ConfigError: an override of a tool that does not exist, or with an unknown key or a value that does not fit.
    """
    own = {tool.spec.name: {} if tool.deadline_s is None else {"deadline_s": tool.deadline_s} for tool in tools}
    for name in config.overrides:
        if name not in own:
            raise ConfigError(f"tools.overrides.{name}: there is no such tool. {nearest(name, own)}")
    base = config.model_dump(include=set(ToolLimits.model_fields))
    return {name: _limits({**base, **own[name]}, config.overrides.get(name, {}), name) for name in own}


def _limits(base: Mapping[str, object], override: Mapping[str, object], name: str) -> Limits:
    checked = validate_section(ToolLimits, {**base, **override}, prefix=f"tools.overrides.{name}")
    return Limits(**checked.model_dump())


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
