"""The server: HTTP and WebSockets in OpenEnv's protocol."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.serving import BodyError, make_server, read_body
from rlfactory_environments.serve.rpc import answer_rpc
from rlfactory_environments.serve.sessions import FullError, ServedSession, Sessions
from rlfactory_environments.serve.wire import (
    ACTION_SCHEMA,
    OBSERVATION_SCHEMA,
    STATE_SCHEMA,
    ActionError,
    error_message,
    observed,
    openapi,
    read_action,
    rpc_error,
)

_log = logging.getLogger(__name__)
_MOST_BYTES = 16 * 2**20  # of one message
_BODY_S = 30.0  # in which a client has to send a body


async def run_server(sessions: Sessions, listening: socket.socket, name: str) -> None:
    """Serve until cancelled."""
    # No pings: a client that computes does not answer them, and its session has to stay.
    server = make_server(make_app(sessions, name), log_level="warning", ws_max_size=_MOST_BYTES, ws_ping_interval=None)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise
    finally:
        await sessions.close()


def make_app(sessions: Sessions, name: str) -> Starlette:
    """The application for a task's sessions.

    Args:
        name: of the task.
    """
    served = _Served(sessions)
    about = {"name": name, "description": f"The task {name} of rlfactory.", "version": "1.0.0"}
    fixed: Mapping[str, Mapping[str, Any]] = {
        "/health": {"status": "healthy"},
        "/schema": {"action": ACTION_SCHEMA, "observation": OBSERVATION_SCHEMA, "state": STATE_SCHEMA},
        "/metadata": about,
        "/openapi.json": openapi(name),
        "/state": {"episode_id": None, "step_count": 0, "sample": None, "done": False},
    }
    routes = [
        *(Route(path, partial(_fixed, data)) for path, data in fixed.items()),
        Route("/reset", served.reset, methods=["POST"]),
        Route("/step", served.step, methods=["POST"]),
        Route("/mcp", served.mcp, methods=["POST"]),
        WebSocketRoute("/ws", served.websocket),
        WebSocketRoute("/mcp", served.mcp_websocket),
    ]
    return Starlette(routes=routes)


async def _fixed(data: Mapping[str, Any], request: Request) -> JSONResponse:
    return JSONResponse(data)


class _Served:
    """The handlers. By HTTP, a reset and a step are an episode of their own, as on OpenEnv's servers."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def reset(self, request: Request) -> JSONResponse:
        return await self._alone(request, acts=False)

    async def step(self, request: Request) -> JSONResponse:
        return await self._alone(request, acts=True)

    async def _alone(self, request: Request, *, acts: bool) -> JSONResponse:
        try:
            body = _parsed(await read_body(request, _MOST_BYTES, _BODY_S) or b"{}")
            if not isinstance(body, Mapping):
                raise ValueError(f"expected an object, not {body!r:.40}")
            session = await self._sessions.open()
        except BodyError as error:
            return _Json({"detail": str(error)}, error.status, {"Connection": "close"})
        except ValueError as error:
            return _invalid(str(error))
        except FullError as error:
            return _Json({"detail": str(error)}, 503)
        try:
            message = read_action(body["action"]) if acts and body.get("action") is not None else None
            response = await session.reset(body)
            if message is not None:
                response = await session.say(message)
            return _Json(observed(response, called=bool(message and message.tool_calls)))
        except UsageError as error:
            return _invalid(str(error))
        except BackendError as error:
            return _Json({"detail": str(error)}, 503)
        finally:
            await session.close()

    async def mcp(self, request: Request) -> JSONResponse:
        try:
            body = _parsed(await read_body(request, _MOST_BYTES, _BODY_S))
        except BodyError as error:
            return _Json({"detail": str(error)}, error.status, {"Connection": "close"})
        except ValueError:
            return _Json(rpc_error(None, -32700, "Parse error"))
        return _Json(await answer_rpc(body, self._sessions))

    async def websocket(self, websocket: WebSocket) -> None:
        named = websocket.query_params.get("session_id")
        async with _accepted(websocket):
            try:
                session = self._attach(named) if named else await self._sessions.open()
            except FullError as error:
                await _send(websocket, error_message("CAPACITY_REACHED", str(error), **error.data))
                return
            except UsageError as error:
                await _send(websocket, error_message("SESSION_ERROR", str(error)))
                return
            session.attached = True
            try:
                while (answer := await self._answer(await _received(websocket), session)) is not None:
                    await _send(websocket, answer)
            finally:
                session.attached = False
                if not named:
                    await session.close()

    async def mcp_websocket(self, websocket: WebSocket) -> None:
        async with _accepted(websocket):
            try:
                session = await self._sessions.open()
            except FullError as error:
                await _send(websocket, rpc_error(None, -32000, str(error), error.data))
                return
            session.attached = True
            try:
                await session.reset({})
                while True:
                    try:
                        body = _parsed(await _received(websocket))
                    except ValueError:
                        await _send(websocket, rpc_error(None, -32700, "Parse error"))
                    else:
                        await _send(websocket, await answer_rpc(body, self._sessions, session))
            finally:
                await session.close()

    def _attach(self, named: str) -> ServedSession:
        session = self._sessions.find(named)
        if session.attached:
            raise UsageError(f"Session {named[:64]} already has an attached WebSocket")
        return session

    async def _answer(self, text: str | bytes, session: ServedSession) -> dict[str, Any] | None:
        """The answer to a message of the WebSocket; None ends the session."""
        try:
            message = _parsed(text)
        except ValueError as error:
            return error_message("INVALID_JSON", f"Invalid JSON: {error}")
        kind = message.get("type") if isinstance(message, Mapping) else None
        data = message.get("data") or {} if isinstance(message, Mapping) else {}
        if kind == "close":
            return None
        try:
            return await self._answer_kind(str(kind), data if isinstance(data, Mapping) else {}, session)
        except ActionError as error:
            errors = [{"loc": ["data"], "msg": str(error), "type": "value_error"}]
            return error_message("VALIDATION_ERROR", "Invalid message", errors=errors)
        except UsageError as error:
            return error_message("EXECUTION_ERROR", str(error))
        except BackendError as error:  # not a fault of the action: a client must not score the episode
            return error_message("SESSION_ERROR", str(error))
        except Exception:  # noqa: BLE001 - the boundary of a session: a bug in a task ends no other session
            _log.exception("a session failed")
            return error_message("SESSION_ERROR", "The task failed; the server's log has the reason.")

    async def _answer_kind(self, kind: str, data: Mapping[str, Any], session: ServedSession) -> dict[str, Any]:
        if kind == "reset":
            return {"type": "observation", "data": observed(await session.reset(data))}
        if kind == "step":
            message = read_action(data)
            response = await session.say(message)
            return {"type": "observation", "data": observed(response, called=bool(message.tool_calls))}
        if kind == "state":
            return {"type": "state", "data": session.state()}
        if kind == "mcp":
            return {"type": "mcp", "data": await answer_rpc(data, self._sessions, session)}
        return error_message("UNKNOWN_TYPE", f"Unknown message type: {kind[:64]}")


class _Json(JSONResponse):
    """Escapes what is not ASCII, because half a surrogate pair, which JSON may hold, cannot be encoded."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


def _invalid(reason: str) -> JSONResponse:
    return _Json({"detail": [{"loc": ["body"], "msg": reason, "type": "value_error"}]}, 422)


def _parsed(text: str | bytes) -> Any:
    """
    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


@asynccontextmanager
async def _accepted(websocket: WebSocket) -> AsyncIterator[None]:
    """An open socket, which is closed in the end. A client that goes ends the block."""
    await websocket.accept()
    with suppress(WebSocketDisconnect, BackendError):
        yield
    with suppress(WebSocketDisconnect, RuntimeError):
        await websocket.close()


async def _received(websocket: WebSocket) -> str | bytes:
    """The next message, which may also come as bytes; raises `WebSocketDisconnect` if the client has gone."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    text: str | bytes = message.get("text") or message.get("bytes") or ""
    return text


async def _send(websocket: WebSocket, message: Mapping[str, Any]) -> None:
    await websocket.send_text(json.dumps(message))
