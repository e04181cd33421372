"""Errors of the MCP SDK: a connection that was lost is told from an error that a server made itself."""

from __future__ import annotations

import pytest
from rlfactory_mcp.compat import UNREACHABLE, RpcError


@pytest.mark.parametrize(
    ("code", "message", "lost"),
    [
        (-32000, "Connection closed", True),
        (-32000, "SSE stream ended without a response", True),
        (-32000, "SSE stream ended and reconnection attempts were exhausted", True),
        (UNREACHABLE, "HTTP 503", True),
        (-32000, "The repository is closed", False),
        (-32602, "Connection closed", False),
    ],
)
def test_a_lost_connection_is_told_from_a_server_s_own_error(code: int, message: str, lost: bool) -> None:
    assert RpcError(code, message).connection_lost is lost
