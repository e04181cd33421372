"""The two releases of the MCP SDK that are in use, 1.30 and 2.3, as one.

All that differs between them and is used here stands in this file. Models are turned into their wire form (camel case,
the same in both) as soon as they arrive, so that nobody else meets an attribute that the other release spells
differently.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, cast

from rlfactory_core.errors import MissingExtraError

_CONNECTION_CLOSED = -32000
_CLOSED_MESSAGE = "Connection closed"  # what either release says of its own; servers use the code for errors of theirs
_CUT_OFF = ("SSE stream ended", "SSE stream failed")  # what 2.x says where an answer over HTTP broke off
INVALID_PARAMS = -32602
_CUT_S = 0.5  # for the word that a call was cut to be on its way
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
    """What a server says of itself."""

    identity: str  # its own name and version
    tools: tuple[ListedTool, ...]


class RpcError(Exception):
    """A JSON-RPC error, whichever class of the SDK carried it."""

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
    def connection_lost(self) -> bool:
        closed = self.message == _CLOSED_MESSAGE or self.message.startswith(_CUT_OFF)
        return (self.code == _CONNECTION_CLOSED and closed) or self.code == UNREACHABLE


def _sdk() -> Any:
    """The SDK.

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


def require_sdk() -> None:
    """Raises `MissingExtraError` where the SDK is not installed."""
    _sdk()


def _is_v1() -> bool:
    return hasattr(_sdk(), "McpError")


def session(read: Any, write: Any) -> AbstractAsyncContextManager[Any]:
    """A client session over a pair of message streams; to be entered and left in one task."""
    from rlfactory_core import __version__

    mcp = _sdk()
    made = mcp.ClientSession(read, write, client_info=mcp.types.Implementation(name="rlfactory", version=__version__))
    return cast("AbstractAsyncContextManager[Any]", made)


async def introduce(session: Any) -> Listing:
    """The handshake, and all pages of the tools' list."""
    wire = _wire(await session.initialize())
    info = wire["serverInfo"]
    tools: list[ListedTool] = []
    if "tools" in wire["capabilities"]:
        cursor: str | None = None
        while True:
            params = None if cursor is None else _sdk().types.PaginatedRequestParams(cursor=cursor)
            page = _wire(await session.list_tools(params=params))
            tools.extend(map(_listed, page["tools"]))
            cursor = page.get("nextCursor")
            if not cursor:
                break
    return Listing(f"{info['name']} {info['version']}", tuple(tools))


def _listed(tool: Mapping[str, Any]) -> ListedTool:
    hints = tool.get("annotations") or {}
    harmless = bool(hints.get("readOnlyHint") or hints.get("idempotentHint"))
    return ListedTool(tool["name"], tool.get("description") or "", tool["inputSchema"], harmless)


async def call_tool(session: Any, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result of ``tools/call`` in its wire form; a call that is cancelled is taken back at the server.

    A request of its own and not the session's ``call_tool``: that one asks for the list of tools again where a page
    left one out, and drops an answer whose structured part does not fit the tool's output schema.
    """
    try:
        return await _send_call(session, name, arguments)
    except Exception as error:
        raise rpc_error(error) or error from error


async def _send_call(session: Any, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    types = _sdk().types
    request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=dict(arguments)))
    if not _is_v1():
        return _wire(await session.send_request(request, types.CallToolResult))
    # 2.x tells the server that a call was cut; 1.x leaves that to its caller, and numbers requests in this attribute.
    number = getattr(session, "_request_id", None)
    try:
        return _wire(await session.send_request(types.ClientRequest(request), types.CallToolResult))
    except asyncio.CancelledError:
        with suppress(Exception):
            cut = types.CancelledNotification(params=types.CancelledNotificationParams(requestId=number))
            await asyncio.wait_for(session.send_notification(types.ClientNotification(cut)), _CUT_S)
        raise


async def ping(session: Any) -> None:
    """Raises what the request raises where the server does not answer it."""
    await session.send_ping()


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
    """What the server, or the SDK in its place, answered instead of a result."""
    mcp = _sdk()
    if not isinstance(error, mcp.McpError if _is_v1() else mcp.MCPError):
        return None
    return RpcError(error.error.code, error.error.message)


def parse_message(line: bytes) -> Any:
    """One line of a stdio server as what the session's stream takes.

    Raises:
        ValueError: it is not a JSON-RPC message.
    """
    from mcp.shared.message import SessionMessage

    types = _sdk().types
    if _is_v1():
        return SessionMessage(types.JSONRPCMessage.model_validate_json(line))
    return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))


def message_bytes(message: Any) -> bytes:
    """The other way round, line break included."""
    left_out = {"exclude_none": True} if _is_v1() else {"exclude_unset": True}
    dumped: str = message.message.model_dump_json(by_alias=True, **left_out)
    return dumped.encode() + b"\n"


def default_environment() -> dict[str, str]:
    """What every stdio server sees of our environment: where programs and the home folder are, and no secrets."""
    from mcp.client.stdio import get_default_environment

    return dict(get_default_environment())


def http_package() -> Any:
    """httpx, or httpx2 with the SDK's second generation: the same for what is used of it here."""
    if _is_v1():
        import httpx

        return httpx
    from importlib import import_module

    return import_module("httpx2")


def streamable_http(url: str, client: Any) -> AbstractAsyncContextManager[Any]:
    """Yields the streams as its first two items."""
    from mcp.client.streamable_http import streamable_http_client

    options = {"max_sse_event_size": None} if "max_sse_event_size" in _parameters(streamable_http_client) else {}
    return cast("AbstractAsyncContextManager[Any]", streamable_http_client(url, http_client=client, **options))


def sse(url: str, make_client: Any) -> AbstractAsyncContextManager[Any]:
    """Yields the streams as its first two items."""
    from mcp.client.sse import sse_client

    return cast("AbstractAsyncContextManager[Any]", sse_client(url, httpx_client_factory=make_client))


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _wire(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped
