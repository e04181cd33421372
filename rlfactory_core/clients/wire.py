"""Converts messages to the JSON of OpenAI's chat completions, and answers and refusals back.

Answers are read tolerantly, because a model wrote them and one of many servers passed them on. A malformed call becomes
a `ToolCall` with an ``error`` that the model can learn from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from rlfactory_core.protocols import Sampled
from rlfactory_core.types import Message, ToolCall
from rlfactory_core.utils.display import shortened
from rlfactory_core.utils.text import BYTES_PER_TOKEN, STRICT_JSON, clean

REASONING_KEYS = ("reasoning_content", "reasoning")  # DeepSeek, SGLang and llama.cpp; newer vLLM and OpenRouter
BROKEN_OFF = ("abort", "error")  # of vLLM and SGLang, for a request that was cancelled or failed after it had begun

_CLOSE_THINK = "</think>"
_NAMELESS = "Invalid tool call: it names no function."


def message_to_wire(message: Message, reasoning_key: str | None) -> dict[str, Any]:
    """One message of the conversation.

    Args:
        reasoning_key: the key under which the server returns reasoning, and so accepts it; None: it is left out.
    """
    row: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        row["tool_calls"] = [_call_to_wire(call) for call in message.tool_calls]
    if message.reasoning and reasoning_key:
        row[reasoning_key] = message.reasoning
    if message.name and message.role != "tool":
        row["name"] = message.name
    if message.role == "tool":
        row["tool_call_id"] = message.tool_call_id or ""
    return row


def sampled_from_wire(data: Any, asked: Mapping[str, Any] = {}) -> Sampled:
    """The first choice of a response to the request ``asked``. Tokens that the server does not count are estimated.

    Raises:
        ValueError: it is not a chat completion, or the server broke off.
    """
    try:
        choice = data["choices"][0]
        if choice.get("finish_reason") in BROKEN_OFF:
            raise ValueError(f"the server broke it off (finish_reason {choice['finish_reason']})")
        usage = data.get("usage") or {}
        return Sampled(
            _message(choice["message"]),
            "length" if choice.get("finish_reason") == "length" else "stop",
            _tokens(usage.get("prompt_tokens"), [asked.get("messages"), asked.get("tools")]),
            _tokens(usage.get("completion_tokens"), choice["message"]),
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not one ({type(error).__name__}: {error})") from error


def _tokens(counted: Any, value: Any) -> int:
    """The server's count; what the JSON of ``value`` comes to, if it counts none."""
    if counted and int(counted) > 0:
        return int(counted)
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")) // BYTES_PER_TOKEN + 1


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
    """A text, or the joined texts of a list of parts."""
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
    """Replaces ids if a server gives one twice, because results are matched to calls by id."""
    if len({call.id for call in calls}) == len(calls):
        return tuple(calls)
    return tuple(replace(call, id=f"call_{index}") for index, call in enumerate(calls))


def _call_to_wire(call: ToolCall) -> dict[str, Any]:
    """A call with a JSON object as arguments, because servers parse earlier calls and fail on anything else."""
    arguments = {"invalid": call.arguments_text} if call.arguments is None else dict(call.arguments)
    text = clean(json.dumps(arguments, ensure_ascii=False))
    function = {"name": call.name or "unknown", "arguments": text}
    return {"id": call.id, "type": "function", "function": function}


_RETRIED = (408, 409, 425, 429)  # and all from 500 on
_MAX_SHOWN = 300  # characters of a server's own message


class RefusedError(Exception):
    """A server's answer with an error status; it does not leave the client.

    Args:
        body: of the answer.
        headers: a mapping with names in lower case, or one that ignores case.
    """

    def __init__(self, status: int, body: str, headers: Mapping[str, str]) -> None:
        self.status, self.text = status, _error_text(body)
        self.retry_after_s = _seconds(headers.get("retry-after"))
        super().__init__(f"answered with HTTP status {status}" + (f": {self.text}" if self.text else ""))

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.status in _RETRIED or self.status >= 500

    @property
    def context_is_full(self) -> bool:
        """Whether the conversation exceeds the context, by the messages of vLLM, SGLang, llama.cpp and OpenAI."""
        text = self.text.lower()
        return self.status in (400, 413, 422) and "context" in text and ("length" in text or "size" in text)


def _error_text(body: str) -> str:
    """The server's message, taken from its JSON if that has the usual form."""
    try:
        data = json.loads(body)
        found = data.get("error", data)
        body = str(found.get("message") or found.get("detail") or body) if isinstance(found, dict) else str(found)
    except (ValueError, AttributeError, RecursionError):
        pass
    return shortened(" ".join(body.split()), _MAX_SHOWN)


def _seconds(retry_after: str | None) -> float:
    """The seconds of a ``Retry-After`` header; 0 if it is missing or unreadable."""
    if not retry_after:
        return 0.0
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return 0.0
    return max(0.0, seconds) if isfinite(seconds) else 0.0
