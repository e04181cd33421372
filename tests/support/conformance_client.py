"""The client that the MCP conformance suite runs: our tools from the server at the URL, each called once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from rlfactory_mcp.source import McpSource

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import UsageError
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.types import Sample, ToolCall

_EXAMPLES = {"number": 2, "integer": 2, "string": "two", "boolean": True, "array": [], "object": {}}


async def main(url: str) -> int:
    """The number of calls that failed."""
    source = McpSource({"mcpServers": {"server": {"url": url, "type": "streamable-http"}}})
    try:
        try:
            tools = await source.open(())
        except UsageError as refusal:  # `initialize` has a server without tools: of no use, and said only afterwards
            print(refusal, file=sys.stderr)
            return 0
        manager = DefaultToolManager(tools)
        calls = [ToolCall(spec.name, spec.name, "", _arguments(spec.parameters)) for spec in manager.specs]
        results = await manager.invoke(calls, ToolContext("t", Sample("s", "?")))
        await manager.close()
    finally:
        await source.close()
    for result in results:
        print(result, file=sys.stderr)
    return sum(result.fault is not None for result in results)


def _arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _EXAMPLES[part["type"]] for name, part in schema.get("properties", {}).items()}


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
