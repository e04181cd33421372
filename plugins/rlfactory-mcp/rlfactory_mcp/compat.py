"""One interface to both supported releases of the MCP SDK, 1.30 and 2.3, whose differences only this file knows.

The releases name the attributes of messages differently, so messages are converted to their wire form (camel case) as
soon as they arrive.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from rlfactory_core.errors import MissingExtraError

_CONNECTION_CLOSED = -32000
_CLOSED_MESSAGE = "Connection closed"  # the SDK's own message; servers use the same code for their errors
_CUT_OFF = ("SSE stream ended", "SSE stream failed")  # messages of 2.x for an answer over HTTP that broke off
INVALID_PARAMS = -32602
_INTERNAL = -32603
# Parse error, invalid request, no method: of messages whose form is ours, or of answers that the SDK cannot read, such
# as the page of a proxy. No arguments of a call lead to them.
_NO_MCP = {-32700, -32600, -32601}
_CUT_S = 0.5  # to send the notification that a call was cancelled
UNREACHABLE = -32098  # ours, in the range that JSON-RPC leaves free: an HTTP request failed


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One tool as a server describes it."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON schema of the arguments object
    idempotent: bool = False  # the server says that a repeated call does no harm


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server offers."""

    identity: str  # the server's own name and version
    tools: tuple[ListedTool, ...]


class RpcError(Exception):
    """A JSON-RPC error, in either release of the SDK."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    @classmethod
    def lost(cls) -> RpcError:
        """The connection ended before there was an answer."""
        return cls(_CONNECTION_CLOSED, _CLOSED_MESSAGE)

    @property
    def invalid_arguments(self) -> bool:
        return self.code == INVALID_PARAMS

    @property
    def internal(self) -> bool:
        """Whether its text is about the server, and not written for who calls the tool."""
        return self.code == _INTERNAL

    @property
    def connection_lost(self) -> bool:
        """Whether there was no answer of an MCP server."""
        closed = self.message == _CLOSED_MESSAGE or self.message.startswith(_CUT_OFF)
        return (self.code == _CONNECTION_CLOSED and closed) or self.code == UNREACHABLE or self.code in _NO_MCP


def require_sdk() -> Any:
    """The package ``mcp``.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import mcp
        import mcp.types
    except ImportError as error:
        raise MissingExtraError(
            "MCP servers need the package mcp. Install it: python -m pip install 'rlfactory-core[mcp]'"
        ) from error
    return mcp


def _is_v1() -> bool:
    return hasattr(require_sdk(), "McpError")


def session(read: Any, write: Any) -> AbstractAsyncContextManager[Any]:
    """A client session over a pair of message streams; it has to be entered and left in the same task."""
    from rlfactory_core.version import __version__

    mcp = require_sdk()
    made = mcp.ClientSession(read, write, client_info=mcp.types.Implementation(name="rlfactory", version=__version__))
    return cast("AbstractAsyncContextManager[Any]", made)


async def introduce(session: Any) -> Listing:
    """Do the handshake and read all pages of the list of tools."""
    wire = _wire(await session.initialize())
    info = wire["serverInfo"]
    tools = await list_tools(session) if "tools" in wire["capabilities"] else ()
    return Listing(f"{info['name']} {info['version']}", tuple(tools))


async def list_tools(session: Any) -> list[ListedTool]:
    """All pages of the list."""
    tools: list[ListedTool] = []
    cursor: str | None = None
    while True:
        params = None if cursor is None else require_sdk().types.PaginatedRequestParams(cursor=cursor)
        page = _wire(await session.list_tools(params=params))
        tools.extend(map(_listed, page["tools"]))
        cursor = page.get("nextCursor")
        if not cursor:
            return tools


def _listed(tool: Mapping[str, Any]) -> ListedTool:
    hints = tool.get("annotations") or {}
    harmless = bool(hints.get("readOnlyHint") or hints.get("idempotentHint"))
    return ListedTool(tool["name"], tool.get("description") or "", tool["inputSchema"], harmless)


async def call_tool(session: Any, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result of ``tools/call`` in its wire form. If the call is cancelled, the server is told so.

    The session's own ``call_tool`` is not used: it lists the tools again if a page left one out, and drops an answer
    whose structured part does not fit the tool's output schema.
    """
    try:
        return await _send_call(session, name, arguments)
    except Exception as error:
        raise rpc_error(error) or error from error


async def _send_call(session: Any, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    types = require_sdk().types
    request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=dict(arguments)))
    if not _is_v1():
        return _wire(await session.send_request(request, types.CallToolResult))
    # 2.x tells the server about a cancelled call; 1.x leaves that to the caller. This attribute numbers its requests.
    number = getattr(session, "_request_id", None)
    try:
        return _wire(await session.send_request(types.ClientRequest(request), types.CallToolResult))
    except asyncio.CancelledError:
        with suppress(Exception):
            cut = types.CancelledNotification(params=types.CancelledNotificationParams(requestId=number))
            await asyncio.wait_for(session.send_notification(types.ClientNotification(cut)), _CUT_S)
        raise


def result_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result in a JSON-RPC response.

    Raises:
        RpcError: it holds an error instead.
        ValueError: it is no such response.
    """
    result, error = message.get("result"), message.get("error")
    if isinstance(result, Mapping):
        return result
    if isinstance(error, Mapping) and isinstance(error.get("code"), int):
        raise RpcError(error["code"], str(error.get("message", "")))
    raise ValueError("neither a result nor an error")


def rpc_error(error: BaseException) -> RpcError | None:
    """The JSON-RPC error that an exception of the SDK stands for, if it is one."""
    mcp = require_sdk()
    if not isinstance(error, mcp.McpError if _is_v1() else mcp.MCPError):
        return None
    return RpcError(error.error.code, error.error.message)


def parse_message(line: bytes) -> Any:
    """One line of a stdio server as a message for the session's stream.

    Raises:
        ValueError: it is not a JSON-RPC message.
    """
    from mcp.shared.message import SessionMessage

    types = require_sdk().types
    if _is_v1():
        return SessionMessage(types.JSONRPCMessage.model_validate_json(line))
    return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))


def message_bytes(message: Any) -> bytes:
    """A message of the session as a line for a stdio server."""
    left_out = {"exclude_none": True} if _is_v1() else {"exclude_unset": True}
    dumped: str = message.message.model_dump_json(by_alias=True, **left_out)
    return dumped.encode() + b"\n"


def default_environment() -> dict[str, str]:
    """The variables that every stdio server gets: paths of programs and of the home folder, and no secrets."""
    from mcp.client.stdio import get_default_environment

    return dict(get_default_environment())


def http_package() -> Any:
    """httpx, or httpx2 with 2.x of the SDK; what is used here is the same in both."""
    return import_module("httpx" if _is_v1() else "httpx2")


def streamable_http(url: str, client: Any) -> AbstractAsyncContextManager[Any]:
    """Yields the streams as its first two items."""
    from mcp.client.streamable_http import streamable_http_client

    known = inspect.signature(streamable_http_client).parameters
    options = {"max_sse_event_size": None} if "max_sse_event_size" in known else {}
    return cast("AbstractAsyncContextManager[Any]", streamable_http_client(url, http_client=client, **options))


def sse(url: str, make_client: Any) -> AbstractAsyncContextManager[Any]:
    """Yields the streams as its first two items."""
    from mcp.client.sse import sse_client

    return cast("AbstractAsyncContextManager[Any]", sse_client(url, httpx_client_factory=make_client))


def _wire(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped
