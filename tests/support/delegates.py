"""Tools that have to be opened, with a manager around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tool_calls import write

from rlfactory_core.context import ToolContext
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.tools.settings import ToolsConfig
from rlfactory_core.tools.sources import OpenTools
from rlfactory_core.types import Message, Sample, ToolResult

SAMPLE = Sample("s", (Message("user", "?"),), answer="42", metadata={"db": "x"})


def managed(items: Any, work: Callable[[DefaultToolManager], Coroutine[Any, Any, Any]], **config: Any) -> Any:
    """Open ``items``, run ``work`` with a manager of them, close all, and see that no task outlives it."""

    async def run() -> Any:
        opened = OpenTools()
        try:
            await opened.open(items)
            manager = DefaultToolManager(opened.tools, ToolsConfig(**config))
            try:
                return await work(manager)
            finally:
                await manager.close()
        finally:
            await opened.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(run())


async def ask(manager: DefaultToolManager, name: str, context: ToolContext | None = None, **given: Any) -> ToolResult:
    (result,) = await manager.invoke([write(name, given)], context or ToolContext("t", SAMPLE))
    return result


def call(items: Any, name: str, given: dict[str, Any], **config: Any) -> ToolResult:
    """One call."""
    result: ToolResult = managed(items, lambda manager: ask(manager, name, **given), **config)
    return result
