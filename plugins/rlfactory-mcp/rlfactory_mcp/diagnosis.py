"""``rlfactory doctor``: the release of the MCP SDK."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from rlfactory_core.errors import MissingExtraError
from rlfactory_core.plugins.diagnostics import Check, DoctorRequest
from rlfactory_mcp.compat import require_sdk


def diagnose(request: DoctorRequest) -> Iterator[Check]:
    """Report with which release servers are spoken to."""
    try:
        require_sdk()
    except MissingExtraError as error:
        yield Check("problem", "mcp", str(error))
    else:
        yield Check("ok", "mcp", f"MCP servers as tools, with mcp {version('mcp')}")
