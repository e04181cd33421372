"""Sources of tools, such as MCP servers: those that a configuration names, and how they are started and closed."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import Tool, ToolSource

_log = logging.getLogger(__name__)

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


class OpenTools:
    """The tools of one worker process: ``await open(items)``, once or more, use ``tools``, ``await close()``.

    Args:
        group: passed to the sources; see `protocols.ToolSource`.
    """

    def __init__(self, group: str = "") -> None:
        self._group = group
        self.tools: tuple[Tool, ...] = ()
        self._sources: list[ToolSource] = []

    async def open(self, items: Sequence[Any]) -> None:
        """Start the sources among ``items`` one after another, so that names are assigned in a fixed order.

        Anything that is neither a source nor a tool is passed on; the tool manager refuses it.

        Raises:
            UsageError, BackendError: a source cannot start; the caller still has to close those before it.
        """
        if not isinstance(items, Iterable):
            raise UsageError(f"tools is {items!r:.80}; expected a list of tools, also of one.")
        self.tools += tuple(item for item in items if not _is_source(item))
        for source in filter(_is_source, items):
            self._sources.append(source)
            names = {tool.spec.name for tool in self.tools if isinstance(tool, Tool)}
            self.tools += tuple(await source.open(names, self._group))

    async def close(self) -> None:
        """Close the sources in reverse order, also if one of them fails to close."""
        while self._sources:
            source = self._sources.pop()
            try:
                await source.close()
            except Exception:  # noqa: BLE001 the boundary to a source's code
                _log.warning("%r did not close", source, exc_info=True)


def _is_source(item: object) -> bool:
    """A tool that has a method ``open`` is still a tool."""
    return isinstance(item, ToolSource) and not isinstance(item, Tool)
