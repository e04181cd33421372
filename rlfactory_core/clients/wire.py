"""Messages and tools in the JSON of OpenAI's chat completions, and back.

What comes back was written by a model and passed on by one of many servers: it is read tolerantly, and what is not a
call becomes a `ToolCall` with an ``error`` that the model can learn from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.chat.parsers.json_calls import STRICT_JSON
from rlfactory_core.clients.base import Completion
from rlfactory_core.tools.results import clean
from rlfactory_core.types import Message, ToolCall, ToolSpec

REASONING_KEYS = ("reasoning_content", "reasoning")  # DeepSeek, SGLang and llama.cpp; newer vLLM and OpenRouter
BROKEN_OFF = ("abort", "error")  # vLLM's and SGLang's, where a request was cancelled or failed after it had begun

_CLOSE_THINK = "</think>"
_NAMELESS = "Invalid tool call: it names no function."


def tools_to_wire(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Tools as function schemas."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def message_to_wire(message: Message, reasoning_key: str | None) -> dict[str, Any]:
    """One message of the conversation.

    Args:
        reasoning_key: under which key the server gave reasoning and so takes it back; None: it is left out.
    """
    row: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        row["tool_calls"] = [_call_to_wire(call) for call in message.tool_calls]
    if message.reasoning and reasoning_key:
        row[reasoning_key] = message.reasoning
    if message.role == "tool":
        row["tool_call_id"] = message.tool_call_id or ""
    return row


def completion_from_wire(data: Any) -> Completion:
    """The first choice of a response.

    Raises:
        ValueError: it is not a chat completion, or the server broke it off.
    """
    try:
        choice = data["choices"][0]
        if choice.get("finish_reason") in BROKEN_OFF:
            raise ValueError(f"the server broke it off (finish_reason {choice['finish_reason']})")
        usage = data.get("usage") or {}
        return Completion(
            _message(choice["message"]),
            "length" if choice.get("finish_reason") == "length" else "stop",
            int(usage.get("prompt_tokens") or 0),
            int(usage.get("completion_tokens") or 0),
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not one ({type(error).__name__}: {error})") from error


def reasoning_key(data: Any) -> str | None:
    """The key under which a response, read before without error, holds reasoning."""
    return next((key for key in REASONING_KEYS if data["choices"][0]["message"].get(key)), None)


def _message(row: Mapping[str, Any]) -> Message:
    content = _text(row.get("content"))
    reasoning = next((_text(row[key]) for key in REASONING_KEYS if row.get(key)), "")
    if not reasoning and _CLOSE_THINK in content:  # a server without a reasoning parser
        reasoning, _, content = content.rpartition(_CLOSE_THINK)
        reasoning = reasoning.replace("<think>", "", 1)
    calls = tuple(_call(item, index) for index, item in enumerate(row.get("tool_calls") or ()))
    return Message("assistant", content.strip(), reasoning=reasoning.strip(), tool_calls=_with_own_ids(calls))


def _text(content: Any) -> str:
    """A text, or the texts among a list of parts."""
    if isinstance(content, str):
        return clean(content)
    parts = content if isinstance(content, list) else ()
    return clean("".join(str(part.get("text") or "") for part in parts if isinstance(part, dict)))


def _call(item: Any, index: int) -> ToolCall:
    function = item.get("function") if isinstance(item, dict) else None
    if not isinstance(function, dict):
        return ToolCall(f"call_{index}", "", json.dumps(item), error=_NAMELESS)
    name = _text(function.get("name"))
    call_id = _text(item.get("id")) or f"call_{index}"
    raw = function.get("arguments")
    text = clean(raw if isinstance(raw, str) else "" if raw is None else json.dumps(raw, ensure_ascii=False))
    if not name:
        return ToolCall(call_id, "", text, error=_NAMELESS)
    try:
        arguments = STRICT_JSON.decode(text) if text.strip() else {}  # many servers write no arguments as no text
        if isinstance(arguments, str):  # encoded twice
            arguments = STRICT_JSON.decode(arguments)
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else "it cannot be read"
        return ToolCall(call_id, name, text, error=f"Invalid tool call: the arguments are not valid JSON ({why}).")
    if not isinstance(arguments, dict):
        return ToolCall(call_id, name, text, error="Invalid tool call: the arguments are not a JSON object.")
    return ToolCall(call_id, name, text, arguments)


def _with_own_ids(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Results are matched to calls by id, so ids that a server gives twice are replaced."""
    if len({call.id for call in calls}) == len(calls):
        return tuple(calls)
    return tuple(
        ToolCall(f"call_{index}", call.name, call.arguments_text, call.arguments, call.error)
        for index, call in enumerate(calls)
    )


def _call_to_wire(call: ToolCall) -> dict[str, Any]:
    """Servers parse the arguments of earlier calls and fail on what is not a JSON object."""
    arguments = {"invalid": call.arguments_text} if call.arguments is None else dict(call.arguments)
    text = clean(json.dumps(arguments, ensure_ascii=False))
    function = {"name": call.name or "unknown", "arguments": text}
    return {"id": call.id, "type": "function", "function": function}
