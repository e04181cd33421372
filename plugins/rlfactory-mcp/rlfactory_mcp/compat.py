"""One interface to both supported releases of the MCP SDK, 1.30 and 2.3, whose differences only this file knows.

The releases name the attributes of messages differently, so messages are converted to their wire form (camel case) as
soon as they arrive.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, cast

from pydantic import BaseModel, RootModel

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
_VERSION_HEADER = "mcp-protocol-version"
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
    problems: tuple[str, ...] = ()  # what was left out or read as something else, for the user


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


class Session:
    """The SDK's session, which does pings and the server's own requests; results are in their wire form.

    Requests of ours do not go through the SDK's models of results, which refuse a whole list for one odd field.
    """

    def __init__(self, sdk: Any, dispatcher: Any) -> None:
        self._sdk = sdk
        self._dispatcher = dispatcher  # None in 1.x
        self._options: dict[str, Any] = {}
        self.problem = ""  # what is odd about the handshake

    async def introduce(self) -> Mapping[str, Any]:
        """Do the handshake; returns the server's answer."""
        types = require_sdk().types
        spoken = _latest_version()
        info = {"name": "rlfactory", "version": version("rlfactory-mcp")}
        asked = {"protocolVersion": spoken, "capabilities": {}, "clientInfo": info}
        answer = await self.request("initialize", asked)
        said = answer.get("protocolVersion")
        if isinstance(said, str) and said in _known_versions():
            spoken = said
        else:
            self.problem = f"it speaks the protocol's version {said!r}, which is unknown; it is read as {spoken}"
        if self._dispatcher is None:
            await self._sdk.send_notification(types.ClientNotification(types.InitializedNotification()))
            return answer
        server = types.Implementation(name="server", version="")
        self._sdk.adopt(
            types.InitializeResult(protocol_version=spoken, capabilities=types.ServerCapabilities(), server_info=server)
        )
        self._options = {"headers": {_VERSION_HEADER: spoken}}
        await self._sdk.send_notification(types.InitializedNotification())
        return answer

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a request. If it is cancelled, the server is told so.

        Raises:
            RpcError: the server answers with an error, or the connection is lost.
        """
        try:
            if self._dispatcher is None:
                return await self._request_v1(method, params)
            options = dict(self._options) if self._options else {"cancel_on_abandon": False}
            return cast("Mapping[str, Any]", await self._dispatcher.send_raw_request(method, dict(params), options))
        except Exception as error:
            raise rpc_error(error) or error from error

    async def _request_v1(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        types = require_sdk().types
        # 2.x tells the server about a cancelled call, 1.x leaves that to the caller. This attribute numbers requests.
        number = getattr(self._sdk, "_request_id", None)
        try:
            answer = await self._sdk.send_request(_Request(method=method, params=dict(params)), _Result)
            return cast("Mapping[str, Any]", answer.root)
        except asyncio.CancelledError:
            with suppress(Exception):
                cut = types.CancelledNotification(params=types.CancelledNotificationParams(requestId=number))
                await asyncio.wait_for(self._sdk.send_notification(types.ClientNotification(cut)), _CUT_S)
            raise

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of ``tools/call``.

        The SDK's own ``call_tool`` is not used: it lists the tools again if a page left one out, and drops an answer
        whose structured part does not fit the tool's output schema.
        """
        return await self.request("tools/call", {"name": name, "arguments": dict(arguments)})

    async def send_ping(self) -> None:
        await self._sdk.send_ping()


class _Request(BaseModel):
    """For 1.x, which only writes it."""

    method: str
    params: dict[str, Any]


class _Result(RootModel[dict[str, Any]]):
    """For 1.x, any result."""


@asynccontextmanager
async def session(read: Any, write: Any) -> AsyncIterator[Session]:
    """A session over a pair of message streams; it has to be entered and left in the same task."""
    mcp = require_sdk()
    info = mcp.types.Implementation(name="rlfactory", version=version("rlfactory-mcp"))
    if _is_v1():
        dispatcher = None
        made = mcp.ClientSession(read, write, client_info=info)
    else:
        dispatcher = import_module("mcp.shared.jsonrpc_dispatcher").JSONRPCDispatcher(read, write)
        made = mcp.ClientSession(client_info=info, dispatcher=dispatcher)
    async with made as sdk:
        yield Session(sdk, dispatcher)


def _known_versions() -> Sequence[str]:
    """The versions that the SDK speaks after a handshake, oldest first."""
    if _is_v1():
        return cast("Sequence[str]", import_module("mcp.shared.version").SUPPORTED_PROTOCOL_VERSIONS)
    return cast("Sequence[str]", import_module("mcp_types.version").HANDSHAKE_PROTOCOL_VERSIONS)


def _latest_version() -> str:
    if _is_v1():
        return str(require_sdk().types.LATEST_PROTOCOL_VERSION)
    return str(import_module("mcp_types.version").LATEST_HANDSHAKE_VERSION)


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
    """The JSON-RPC error that an exception is, or one of the SDK stands for."""
    if isinstance(error, RpcError):
        return error
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
        parse, parse_object = types.JSONRPCMessage.model_validate_json, types.JSONRPCMessage.model_validate
    else:
        adapter = types.jsonrpc_message_adapter
        parse = partial(adapter.validate_json, by_name=False)
        parse_object = partial(adapter.validate_python, by_name=False)
    try:
        return SessionMessage(parse(line))
    except ValueError:  # nested too deeply for this parser, or not quite JSON-RPC
        return SessionMessage(parse_object(_plain_message(line)))


def _plain_message(line: bytes) -> Any:
    """A message without what is null in it, and with its version."""
    try:
        found = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("not an object")
    kept = {key: value for key, value in found.items() if value is not None}
    if kept.keys().isdisjoint({"method", "result", "error"}):
        raise ValueError("not a message")
    return {**kept, "jsonrpc": "2.0"}


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
