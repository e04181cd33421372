"""The tools that one sample's episodes may use, of all that a task has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import DataError, nearest
from rlfactory_core.protocols import ToolManager
from rlfactory_core.tools.validation import as_json, unknown_tool
from rlfactory_core.types import Sample, ToolCall, ToolResult, ToolSpec


def offered_tools(manager: ToolManager, sample: Sample) -> ToolManager:
    """The manager of the tools that `Sample.tools` names; ``manager`` itself if it names none."""
    return manager if sample.tools is None else OfferedTools(manager, sample.tools)


def check_names(samples: Sequence[Sample], manager: ToolManager) -> None:
    """Raises a `DataError` if a sample names a tool that the manager does not have."""
    known = {spec.name for spec in manager.specs}
    for sample in samples:
        for name in sample.tools or ():
            if name not in known:
                raise DataError(
                    f"Sample '{sample.id}' may use the tool {as_json(name)}, which the task does not have. "
                    f"{nearest(name, known)} Where the rows' tools mean something else: data.columns.tools=null"
                )


class OfferedTools:
    """Some tools of another manager. For the model the others do not exist."""

    def __init__(self, manager: ToolManager, names: Collection[str]) -> None:
        self._manager = manager
        self._specs = tuple(spec for spec in manager.specs if spec.name in names)
        self._names = {spec.name for spec in self._specs}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    async def invoke(self, calls: Sequence[ToolCall], context: ToolContext) -> tuple[ToolResult, ...]:
        return await self._manager.invoke([self._allowed(call) for call in calls], context)

    async def close(self) -> None:
        """The manager stays open for other episodes."""

    def _allowed(self, call: ToolCall) -> ToolCall:
        if call.error is not None or call.name in self._names:
            return call
        return replace(call, arguments=None, error=unknown_tool(call.name, self._names))
