"""Sources of tools that a configuration names, such as MCP servers, and what a user sees of their servers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_core.protocols import Tool, ToolSource

Tried = tuple[Sequence[Tool], Sequence["ServerState"]]
"""The tools of the servers that start, which cannot be called, and the states of all servers."""


class ServerTool(ABC):
    """The base class of a tool of a server, beside `protocols.Tool`."""

    @property
    @abstractmethod
    def server(self) -> str:
        """The server's name in the configuration."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """How one server of a configuration has started."""

    name: str
    problem: str = ""  # why it offers nothing; empty: it is ready


@dataclass(frozen=True, slots=True)
class ToolSourceFactoryTraits:
    """Optional attributes of the factory of a source of tools, with their defaults. Each takes the value of its key."""

    settle: Callable[[Any], Any] | None = None
    """Returns the value to save, which has the same meaning in another folder."""
    check: Callable[[Any], None] | None = None
    """Raises a `ConfigError` or `UsageError` for a value that cannot be used, without starting anything."""
    try_servers: Callable[[Any, Collection[str]], Awaitable[Tried]] | None = None
    """Starts each server alone and ends it. The second argument has names that the tools may not have."""


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source of tools that a configuration names; `make` makes it, not yet started."""

    name: str
    given: Any  # the value of the key ``tools.NAME``
    factory: Callable[[Any], ToolSource]
    traits: ToolSourceFactoryTraits

    def make(self) -> ToolSource:
        """Raises a `ConfigError` for a value that does not fit."""
        return self.factory(self.given)
