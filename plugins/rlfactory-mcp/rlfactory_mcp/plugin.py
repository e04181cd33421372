"""The entry point ``mcp``. It imports nothing heavy."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from rlfactory_core import Lazy, hookimpl
from rlfactory_core.hookspecs import Register
from rlfactory_core.protocols import ToolSource

RLFACTORY_API = ">=1,<2"


class Servers:
    """The key ``tools.mcp``: a file with ``mcpServers``, or its content; see `tools.ToolSourceFactoryTraits`."""

    def __call__(self, given: Any) -> ToolSource:
        source: ToolSource = Lazy("rlfactory_mcp.source:McpSource")(given)
        return source

    def settle(self, given: Any) -> Any:
        return str(Path(given).expanduser().absolute()) if isinstance(given, (str, Path)) else given

    def check(self, given: Any) -> None:
        Lazy("rlfactory_mcp.source:check_servers")(given)

    async def try_servers(self, given: Any, taken: Collection[str]) -> Any:
        return await Lazy("rlfactory_mcp.source:try_servers")(given, taken)


@hookimpl
def rlfactory_tool_sources(register: Register) -> None:
    register("mcp", Servers())


@hookimpl
def rlfactory_diagnostics(register: Register) -> None:
    register("mcp", Lazy("rlfactory_mcp.diagnosis:diagnose"))
