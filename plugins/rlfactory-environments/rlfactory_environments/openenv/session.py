"""One session of an OpenEnv server: a WebSocket, which has an environment of its own on the server.

The protocol is that of openenv 0.10 and openenv-core 0.3: each message is a JSON object with ``type`` and ``data``. The
server answers each message with one, in order: ``observation``, ``state``, ``mcp`` (a JSON-RPC response) or ``error``.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from rlfactory_core.errors import BackendError
from rlfactory_core.types import ToolSpec

_CLOSE_S = 5.0  # for the server to release its environment
_MOST_BYTES = 100 * 2**20  # of one message, as in OpenEnv's own client
_SHOWN = 300  # characters of an unreadable answer in a message for the user


@dataclass(frozen=True, slots=True)
class Observed:
    """The environment's response to a reset or a step."""

    observation: Mapping[str, Any]
    reward: float  # 0 if the environment gives none
    done: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """An action that the environment did not take."""

    text: str  # for the model
    invalid: bool  # whether it does not fit the action schema; else the environment raised an exception


class UnreadyServerError(BackendError):
    """No session could be had; another server, or the same one a little later, may have one."""


class ServerFullError(UnreadyServerError):
    """The server has as many sessions as it allows.

    Args:
        most: how many it allows; None: it does not say.
    """

    def __init__(self, message: str, most: int | None) -> None:
        super().__init__(message)
        self.most = most


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
        data = await self._ask("reset", parameters, "observation")
        if isinstance(data, Refusal):
            raise BackendError(f"{self.url} could not reset its environment: {data.text}")
        return self._observed(data)

    async def step(self, action: Mapping[str, Any]) -> Observed | Refusal:
        """Take an action.

        Raises:
            BackendError: the server does not answer, or does not keep the protocol.
        """
        data = await self._ask("step", action, "observation")
        return data if isinstance(data, Refusal) else self._observed(data)

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
        return read_tools(await self._rpc("tools/list", {}))

    async def close(self) -> None:
        """End the session, and wait until the server has released it. A broken connection raises nothing."""
        with suppress(OSError, WebSocketException, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._socket.send(json.dumps({"type": "close"}))
                await self._socket.wait_closed()
        self._socket.transport.abort()

    async def _rpc(self, method: str, params: Mapping[str, Any]) -> Any | Refusal:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        data = await self._ask("mcp", request, "mcp")
        if isinstance(data, Refusal):
            return data
        error = data.get("error")
        return Refusal(str(error.get("message")), invalid=False) if isinstance(error, Mapping) else data.get("result")

    async def _ask(self, kind: str, data: Mapping[str, Any], expected: str) -> Mapping[str, Any] | Refusal:
        message = json.dumps({"type": kind, "data": dict(data)})
        try:
            async with asyncio.timeout(self._deadline_s):
                with suppress(ConnectionClosed):  # a full server says so, and may have closed the connection by now
                    await self._socket.send(message)
                answer = await self._socket.recv()
        except TimeoutError:
            self._socket.transport.abort()
            raise UnreadyServerError(f"{self.url} did not answer to '{kind}' within {self._deadline_s:g} s.") from None
        except (OSError, WebSocketException) as error:
            raise UnreadyServerError(f"{self.url} ended the connection at '{kind}': {error}") from error
        return self._read(answer, expected)

    def _read(self, text: str | bytes, expected: str) -> Mapping[str, Any] | Refusal:
        """The data of an answer of the expected type, or why the environment did not take the action."""
        try:
            answer = json.loads(text)
            kind, data = answer["type"], answer["data"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise self._broken(text, expected) from None
        if kind == expected and isinstance(data, Mapping):
            return data
        if kind != "error" or not isinstance(data, Mapping):
            raise self._broken(text, expected)
        code, message = str(data.get("code")), str(data.get("message"))
        if code == "CAPACITY_REACHED":
            most = data.get("max_sessions")
            raise ServerFullError(f"{self.url} is full: {message}", most if isinstance(most, int) else None)
        if code in ("VALIDATION_ERROR", "EXECUTION_ERROR"):  # those that an action can cause
            return Refusal(_with_details(message, data.get("errors")), code == "VALIDATION_ERROR")
        raise UnreadyServerError(f"{self.url} answered with an error ({code}): {message[:_SHOWN]}")

    def _observed(self, data: Mapping[str, Any]) -> Observed:
        observation, reward = data.get("observation"), data.get("reward")
        number = 0.0 if reward is None else float(reward) if isinstance(reward, (int, float)) else math.nan
        if not isinstance(observation, Mapping) or not math.isfinite(number):
            raise self._broken(json.dumps(data), "observation and a finite reward")
        return Observed(observation, number, bool(data.get("done", False)))

    def _broken(self, text: str | bytes, expected: str) -> BackendError:
        shown = text.decode(errors="replace") if isinstance(text, bytes) else text
        return BackendError(
            f"{self.url} answered with {shown[:_SHOWN]!r}; expected {expected}. Is it an OpenEnv server?"
        )


async def open_session(
    url: str, *, deadline_s: float, connect_s: float, headers: Mapping[str, str] | None = None
) -> Session:
    """Connect to a server. Whether it has room shows at the first request.

    Args:
        url: with ``http`` or ``ws``.
        deadline_s: for each request.

    Raises:
        UnreadyServerError: it cannot be reached.
    """
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    try:
        socket = await connect(
            urlunsplit(parts._replace(scheme=scheme, path=parts.path.rstrip("/") + "/ws")),
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


def read_tools(result: Any) -> tuple[ToolSpec, ...]:
    """The tools of a ``tools/list``'s result. A schema's key is ``inputSchema``, in OpenEnv also ``input_schema``."""
    listed = result.get("tools") if isinstance(result, Mapping) else None
    return tuple(
        ToolSpec(
            str(each["name"]),
            str(each.get("description") or ""),
            each.get("inputSchema") or each.get("input_schema") or {"type": "object", "properties": {}},
        )
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, Mapping) and "name" in each
    )


def _with_details(message: str, errors: Any) -> str:
    """The message, with pydantic's list of errors, if there is one, as ``field: problem``."""
    if not isinstance(errors, list):
        return message
    found = [each for each in errors if isinstance(each, Mapping)]
    parts = [f"{'.'.join(map(str, each.get('loc', ())))}: {each.get('msg', '')}".lstrip(": ") for each in found]
    return f"{message}: {'; '.join(parts)}" if parts else message
