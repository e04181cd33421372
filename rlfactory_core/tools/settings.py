"""The section of the configuration for tools and their limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from rlfactory_core.settings import Natural, Positive, Section


def _cache_place(value: Any) -> Any:
    """YAML reads a bare ``off`` as false; ``true`` is the nearest place."""
    return {True: "memory", False: "off"}[value] if isinstance(value, bool) else value


CachePlace = Annotated[Literal["off", "memory", "disk"], BeforeValidator(_cache_place)]


class ToolLimits(Section):
    """How one tool is called."""

    deadline_s: Annotated[float, Field(gt=0.0)] = 30.0
    """For all attempts of a call together."""
    retries: Natural = 2
    """Attempts after the first, for idempotent tools and infrastructure faults only."""
    concurrency: Positive = 64
    """Most calls of the tool at once."""
    max_result_tokens: Positive = 1024
    """A longer result is truncated, with a note of how much is missing."""
    cache: CachePlace = "off"
    """Results by tool, version and arguments; disk keeps them for later runs. Stateful tools are never cached."""
    breaker_failures: Positive = 20
    """Infrastructure faults in a row after which the tool is not called for a while."""
    breaker_reset_s: Annotated[float, Field(gt=0.0)] = 10.0
    """Seconds after which the tool is tried again."""


class ToolsConfig(ToolLimits):
    """Limits of all tools, and other limits of single tools."""

    manager: str = "default"
    """The name of a registered tool manager."""
    sources: dict[str, Any] = {}
    """Sources of tools that plugins register, by their names; a user writes ``tools.NAME``, such as ``tools.mcp``."""
    total_concurrency: Positive = 512
    """Most calls of all tools at once."""
    overrides: dict[str, dict[str, Any]] = {}
    """Limits of single tools: tool name -> the keys that differ."""
    disabled: tuple[str, ...] = ()
    """Names of tools that the model is not offered."""
