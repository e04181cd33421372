"""One session of an OpenEnv server: a WebSocket, which has an environment of its own on the server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from rlfactory_core.errors import BackendError
from rlfactory_core.types import ToolSpec
from rlfactory_environments.openenv.messages import (
    CLOSE_MESSAGE,
    Observed,
    Refusal,
    UnreadyServerError,
    mcp_message,
    read_answer,
    read_observed,
    reset_message,
    step_message,
)

_CLOSE_S = 5.0  # for the server to release its environment
_MOST_BYTES = 100 * 2**20  # of one message, as in OpenEnv's own client


def websocket_url(url: str) -> str:
    """The address of ``/ws``, for a server's address with ``http`` or ``ws``."""
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    return urlunsplit(parts._replace(scheme=scheme, path=parts.path.rstrip("/") + "/ws"))


class Session:
    """An open session; make one with `open_session`. It answers one request at a time.

    A request that is not answered within the deadline breaks the session, because its answer may come later.
    """

    def __init__(self, url: str, socket: ClientConnection, deadline_s: float) -> None:
        self.url = url
        self._socket = socket
        self._deadline_s = deadline_s

    async def reset(self, parameters: Mapping[str, Any]) -> Observed:
        """Begin an episode.

        Raises:
            UnreadyServerError: the server has no room for this session, or does not answer.
            BackendError: the environment cannot begin.
        """
        data = await self._ask(reset_message(parameters), "observation", "reset")
        if isinstance(data, Refusal):
            raise BackendError(f"{self.url} could not reset its environment: {data.text}")
        return read_observed(self.url, data)

    async def step(self, action: Mapping[str, Any]) -> Observed | Refusal:
        """Take an action.

        Raises:
            BackendError: the server does not answer, or does not keep the protocol.
        """
        data = await self._ask(step_message(action), "observation", "step")
        return data if isinstance(data, Refusal) else read_observed(self.url, data)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any | Refusal:
        """Call a tool by MCP, which is no step of the environment: there is no reward, and the episode does not end.

        Raises:
            BackendError: the server does not answer.
        """
        return await self._rpc("tools/call", {"name": name, "arguments": dict(arguments)})

    async def tools(self) -> tuple[ToolSpec, ...]:
        """The environment's tools by MCP; empty if it has none.

        Raises:
            BackendError: the server does not answer.
        """
        result = await self._rpc("tools/list", {})
        listed = result.get("tools") if isinstance(result, Mapping) else None
        return read_tools(listed if isinstance(listed, list) else ())

    async def close(self) -> None:
        """End the session, and wait until the server has released it. A broken connection raises nothing."""
        with suppress(OSError, WebSocketException, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._socket.send(CLOSE_MESSAGE)
                await self._socket.wait_closed()
        self._socket.transport.abort()

    async def _rpc(self, method: str, params: Mapping[str, Any]) -> Any | Refusal:
        data = await self._ask(mcp_message(method, params), "mcp", method)
        if isinstance(data, Refusal):
            return data
        error = data.get("error")
        return Refusal(str(error.get("message")), invalid=False) if isinstance(error, Mapping) else data.get("result")

    async def _ask(self, message: str, expected: str, what: str) -> Mapping[str, Any] | Refusal:
        try:
            async with asyncio.timeout(self._deadline_s):
                with suppress(ConnectionClosed):  # a full server says so, and may have closed the connection by now
                    await self._socket.send(message)
                answer = await self._socket.recv()
        except TimeoutError:
            self._socket.transport.abort()
            raise UnreadyServerError(f"{self.url} did not answer to '{what}' within {self._deadline_s:g} s.") from None
        except (OSError, WebSocketException) as error:
            raise UnreadyServerError(f"{self.url} ended the connection at '{what}': {error}") from error
        return read_answer(self.url, answer, expected)


async def open_session(
    url: str, *, deadline_s: float, connect_s: float, headers: Mapping[str, str] | None = None
) -> Session:
    """Connect to a server. Whether it has room shows at the first request.

    Args:
        deadline_s: for each request.

    Raises:
        UnreadyServerError: it cannot be reached.
    """
    try:
        socket = await connect(
            websocket_url(url),
            additional_headers=dict(headers or {}),
            open_timeout=connect_s,
            close_timeout=_CLOSE_S,
            ping_interval=None,  # each request has a deadline, and a step may keep a server from answering pings
            max_size=_MOST_BYTES,
            compression=None,  # costs more time than it saves on the way to a server nearby
        )
    except (OSError, WebSocketException, TimeoutError) as error:
        raise UnreadyServerError(f"{url} cannot be reached: {error or type(error).__name__}") from error
    return Session(url, socket, deadline_s)


def read_tools(listed: Sequence[Any]) -> tuple[ToolSpec, ...]:
    """The tools of an MCP ``tools/list``. A schema's key is ``inputSchema``, in OpenEnv also ``input_schema``."""
    return tuple(
        ToolSpec(
            str(each["name"]),
            str(each.get("description") or ""),
            each.get("inputSchema") or each.get("input_schema") or {"type": "object", "properties": {}},
        )
        for each in listed
        if isinstance(each, Mapping) and "name" in each
    )
