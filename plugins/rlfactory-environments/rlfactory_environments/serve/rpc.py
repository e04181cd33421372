"""Tools by JSON-RPC, as OpenEnv's RFC 003 has them: ``tools/list``, ``tools/call``, and sessions over HTTP.

In a session a call is a step of its episode. Without one it is an episode of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_environments.serve.sessions import FullError, ServedSession, Sessions
from rlfactory_environments.serve.wire import calling, mcp_result, rpc_error, rpc_result, tools_data

_INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS, _INTERNAL, _SERVER = -32600, -32601, -32602, -32603, -32000


async def answer_rpc(request: Any, sessions: Sessions, session: ServedSession | None = None) -> dict[str, Any]:
    """The response to a request.

    Args:
        session: of the WebSocket that the request came from.
    """
    number = request.get("id") if isinstance(request, Mapping) else None
    number = number if isinstance(number, (str, int)) else None  # a NaN or a thing cannot come back
    if (
        not isinstance(request, Mapping)
        or request.get("jsonrpc") != "2.0"
        or not isinstance(request.get("method"), str)
    ):
        return rpc_error(number, _INVALID_REQUEST, "Invalid request: expected JSON-RPC 2.0 with a method.")
    params = request.get("params") or {}
    if not isinstance(params, Mapping):
        return rpc_error(number, _INVALID_PARAMS, "Params must be an object")
    try:
        return rpc_result(number, await _answer(str(request["method"]), params, sessions, session))
    except NotImplementedError:
        return rpc_error(number, _NO_METHOD, f"Method not found: {request['method']}")
    except FullError as error:
        return rpc_error(number, _SERVER, str(error), error.data)
    except UsageError as error:
        return rpc_error(number, _INVALID_PARAMS, str(error))
    except BackendError as error:
        return rpc_error(number, _INTERNAL, str(error))


async def _answer(
    method: str, params: Mapping[str, Any], sessions: Sessions, session: ServedSession | None
) -> dict[str, Any]:
    if method == "openenv/session/create":
        made = session or await sessions.open()
        return {"session_id": made.name}
    named = params.get("session_id")
    if method == "openenv/session/close":
        found = sessions.find(str(named))
        if found.attached:
            raise UsageError("Cannot close a session that a WebSocket uses")
        await found.close()
        return {"session_id": found.name, "closed": True}
    if method == "tools/list":
        return {"tools": tools_data(sessions.tools)}
    if method != "tools/call":
        raise NotImplementedError
    message = calling(params.get("name"), params.get("arguments", {}))
    if session is not None or named is not None:
        return mcp_result(await (session or sessions.find(str(named))).say(message))
    alone = await sessions.open()
    try:
        await alone.reset({})
        return mcp_result(await alone.say(message))
    finally:
        await alone.close()
