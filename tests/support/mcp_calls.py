"""MCP servers that misbehave, and calls to them: shared by the tests of MCP tools."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from rlfactory_mcp.source import McpSource

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import ToolUnavailableError
from rlfactory_core.protocols import Tool
from rlfactory_core.types import Sample

SERVER = Path(__file__).with_name("mcp_server.py")


def context(name: str = "t") -> ToolContext:
    return ToolContext(name, Sample("s", "?"))


def fake(*flags: str, **keys: Any) -> dict[str, Any]:
    """The configuration of one server of `mcp_server`."""
    return {"command": sys.executable, "args": [str(SERVER), *flags], **keys}


def servers(**entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"mcpServers": entries}


class OpenedServers:
    """The tools of an open source, by name."""

    def __init__(self, source: McpSource, tools: Mapping[str, Tool]) -> None:
        self.source, self.tools = source, tools
        self.context = context()

    async def call(self, name: str, context: ToolContext | None = None, /, **arguments: Any) -> str:
        return await self.tools[name].call(arguments, context or self.context)

    async def cut(self, name: str, /, after: float = 0.2, **arguments: Any) -> None:
        """Call it and give up, as the manager does at a deadline."""
        task = asyncio.ensure_future(self.call(name, **arguments))
        await asyncio.wait((task,), timeout=after)
        assert not task.done()
        task.cancel()
        await asyncio.wait((task,))

    async def is_back(self) -> bool:
        """Whether a server that went away answers again."""
        try:
            return await self.call("echo", text="back") == "back"
        except ToolUnavailableError:
            return False

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
        """Wait for what happens on its own."""
        ends = time.monotonic() + seconds
        while not await holds():
            assert time.monotonic() < ends, "it did not happen"
            await asyncio.sleep(0.02)


def opened(
    config: Any, work: Callable[[OpenedServers], Awaitable[Any]], *, taken: tuple[str, ...] = (), group: str = ""
) -> Any:
    """Run ``work`` with the tools of a configuration, and see that no task outlives the source."""

    async def run() -> Any:
        source = McpSource(config)
        try:
            tools = await source.open(taken, group)
            return await work(OpenedServers(source, {tool.spec.name: tool for tool in tools}))
        finally:
            await source.close()
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(run())


def answer(config: Any, name: str, /, **arguments: Any) -> str:
    """What one call gives."""
    text: str = opened(config, lambda tools: tools.call(name, **arguments))
    return text
