"""What rlfactory finds under the entry point ``mcp``; nothing heavy is imported here.

The core itself opens `source`, for a configuration with MCP servers (`rlfactory_core.tools.servers`).
"""

from __future__ import annotations

from rlfactory_core import Lazy, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_diagnostics(register: Register) -> None:
    register("mcp", Lazy("rlfactory_mcp.diagnosis:diagnose"))
