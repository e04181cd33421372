"""What a served task says on the wire: actions, observations, schemas, errors, in the shapes of openenv 0.10."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.errors import UsageError
from rlfactory_core.types import FaultKind, Message, ToolCall, ToolSpec
from rlfactory_environments.serve.sessions import Response

TEXT = "message"  # the field of an action that is a turn without calls
ACTION_SCHEMA: Mapping[str, Any] = {
    "title": "AssistantTurn",
    "description": "One turn of the assistant. A tool's call is {type: call_tool, tool_name, arguments} instead.",
    "type": "object",
    "properties": {
        TEXT: {"type": "string", "description": "the assistant's message, without a call of a tool"},
        "metadata": {"type": "object"},
    },
    "required": [TEXT],
}
OBSERVATION_SCHEMA: Mapping[str, Any] = {
    "title": "Observation",
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "what the assistant reads next"},
        "metadata": {
            "type": "object",
            "description": "the same as messages, the tools at first and when they change, why the episode is over",
        },
        "done": {"type": "boolean"},
        "reward": {"type": ["number", "null"]},
    },
}
STATE_SCHEMA: Mapping[str, Any] = {
    "title": "State",
    "type": "object",
    "properties": {
        "episode_id": {"type": ["string", "null"]},
        "step_count": {"type": "integer"},
        "sample": {"type": ["string", "null"]},
        "done": {"type": "boolean"},
    },
}


class ActionError(UsageError):
    """An action that is neither a message nor a call."""


def read_action(data: Any) -> Message:
    """The assistant's message of an action.

    Raises:
        ActionError: it is neither a message nor a call.
    """
    if isinstance(data, Mapping) and data.get("type") == "call_tool":
        return calling(data.get("tool_name"), data.get("arguments", {}))
    if isinstance(data, Mapping) and isinstance(data.get(TEXT), str):
        return Message("assistant", data[TEXT])
    raise ActionError(f"expected {{{TEXT!r}: text}} or {{'type': 'call_tool', 'tool_name': name, 'arguments': {{…}}}}")


def calling(name: Any, arguments: Any) -> Message:
    """The assistant's message with one call.

    Raises:
        ActionError: the name is no text, or the arguments are no object.
    """
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise ActionError("expected a tool's name, and its arguments as an object")
    call = ToolCall("call_0", name, json.dumps(dict(arguments)), dict(arguments))
    return Message("assistant", "", tool_calls=(call,))


def observed(response: Response, called: bool = False) -> dict[str, Any]:
    """The data of an ``observation`` message.

    Args:
        called: whether the action was a call; the observation then has OpenEnv's ``tool_name`` and ``result``, too.
    """
    metadata: dict[str, Any] = {"messages": [message_data(each) for each in response.messages]}
    if response.tools:
        metadata["tools"] = [tool.function_schema for tool in response.tools]
    if response.stop is not None:
        metadata["stop"] = response.stop.value
    text = "\n\n".join(each.content for each in response.messages)
    observation: dict[str, Any] = {"text": text, "metadata": metadata}
    if called:
        name = response.results[0].name if response.results else ""
        observation |= {"tool_name": name, "result": mcp_result(response), "error": None}
    return {"observation": observation, "reward": response.reward, "done": response.stop is not None}


def mcp_result(response: Response) -> dict[str, Any]:
    """The result of a call, as MCP's ``tools/call`` and OpenEnv's clients read it."""
    text = "\n".join(result.content for result in response.results)
    failed = any(result.fault in (FaultKind.POLICY, FaultKind.TOOL) for result in response.results)
    return {"content": [{"type": "text", "text": text}], "data": text, "isError": failed, "is_error": failed}


def message_data(message: Message) -> dict[str, Any]:
    """A message in OpenAI's format."""
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        data["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_text}}
            for call in message.tool_calls
        ]
    if message.role == "tool":
        data |= {"tool_call_id": message.tool_call_id, "name": message.name}
    return data


def tools_data(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The tools in the format of MCP's ``tools/list``."""
    return [
        {"name": tool.name, "description": tool.description, "inputSchema": dict(tool.parameters)} for tool in tools
    ]


def error_message(code: str, message: str, **more: Any) -> dict[str, Any]:
    """An ``error`` message of the WebSocket."""
    return {"type": "error", "data": {"message": message, "code": code, **more}}


def rpc_result(number: Any, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def rpc_error(number: Any, code: int, message: str, data: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message, "data": data}}


def openapi(name: str) -> dict[str, Any]:
    """The description of the HTTP addresses, from which OpenEnv's validation reads which there are."""
    paths = {"/reset": "post", "/step": "post", "/mcp": "post"} | dict.fromkeys(
        ("/state", "/health", "/schema", "/metadata"), "get"
    )
    answers = {"200": {"description": "a JSON object"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": name, "version": "1.0.0"},
        "paths": {path: {method: {"responses": answers}} for path, method in paths.items()},
    }
