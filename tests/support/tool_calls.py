"""Tools, calls and a manager around them: shared by the tests of the tool-call contract."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.protocols import Tool
from rlfactory_core.tools import DefaultToolManager, FunctionTool, tool
from rlfactory_core.tools.settings import ToolsConfig
from rlfactory_core.types import Sample, ToolCall, ToolResult, ToolSpec

CONTEXT = ToolContext("t", Sample("s", "?"))


@tool
async def echo(text: str, times: int = 1) -> str:
    """Say it again.

    Args:
        text: what to say.
    """
    return text * times


def write(name: str, arguments: Mapping[str, Any] | None, call_id: str = "0", error: str | None = None) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments), arguments, error)


def manage(
    work: Callable[[DefaultToolManager], Coroutine[Any, Any, Any]],
    *tools: Tool,
    count_tokens: Any = None,
    **config: Any,
) -> Any:
    """Run ``work`` with a manager, and see that no task outlives it."""

    async def run() -> Any:
        manager = DefaultToolManager(tools, ToolsConfig(**config), count_tokens=count_tokens)
        try:
            return await work(manager)
        finally:
            await manager.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(run())


def invoke(call: ToolCall, *tools: Tool, **config: Any) -> ToolResult:
    async def work(manager: DefaultToolManager) -> ToolResult:
        (result,) = await manager.invoke([call], CONTEXT)
        return result

    result: ToolResult = manage(work, *tools, **config)
    return result


def raising(error: BaseException, *, blocking: bool = False) -> FunctionTool[..., Any]:
    async def breaks() -> str:
        raise error

    def breaks_in_a_thread() -> str:
        raise error

    return FunctionTool(breaks_in_a_thread if blocking else breaks, "breaks")


class Flaky:
    """Fails with an infra fault as often as told, then answers."""

    spec = ToolSpec("flaky", "", {"type": "object"})
    stateful = False
    version = ""
    deadline_s = None

    def __init__(self, failures: int, idempotent: bool = True) -> None:
        self.failures = failures
        self.idempotent = idempotent
        self.calls = 0

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise ToolUnavailableError("down")
        return f"answer {self.calls}"

    async def close(self) -> None: ...
