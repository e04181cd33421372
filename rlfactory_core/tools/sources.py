"""Starts and closes the tool sources that a task and a configuration name."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import Tool, ToolSource

_log = logging.getLogger(__name__)


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
