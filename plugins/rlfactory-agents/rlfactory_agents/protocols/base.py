"""What the three wire formats share. A reader raises `RequestError` where its part of a request does not fit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rlfactory_agents.exchange import ModelAnswer, ModelRequest, RequestError
from rlfactory_agents.past import Past
from rlfactory_core.types import Message, ToolCall, ToolSpec
from rlfactory_core.utils.text import STRICT_JSON, clean

T = TypeVar("T", list[Any], dict[str, Any])


@dataclass(frozen=True, slots=True)
class Reply:
    """An answered request, to be written in its protocol.

    Args:
        id: unique in the process.
        model: the name under which the model is served.
        body: of the request.
    """

    id: str
    model: str
    created: int
    body: Mapping[str, Any]
    answers: Sequence[ModelAnswer]


class WireFormat:
    """One wire format; errors have OpenAI's form unless a subclass has another."""

    path: str  # the end of the address that requests of this format have
    count_path = ""  # that of requests which only count a prompt's tokens; empty: the protocol has none

    def read(self, body: Mapping[str, Any], past: Past) -> ModelRequest:
        """The request, which may name what the attempt has been answered."""
        raise NotImplementedError

    def write(self, reply: Reply) -> dict[str, Any]:
        """The whole answer."""
        raise NotImplementedError

    def events(self, reply: Reply) -> Iterator[str]:
        """The answer as server-sent events."""
        raise NotImplementedError

    def given(self, reply: Reply) -> dict[str, Mapping[str, Any]]:
        """What later requests may name of an answer, by its ids."""
        return {}

    def counted(self, tokens: int) -> dict[str, Any]:
        """The answer to a request of `count_path`."""
        raise NotImplementedError

    def error(self, error: RequestError) -> dict[str, Any]:
        kind = "server_error" if error.status >= 500 else "invalid_request_error"
        return {"error": {"message": str(error), "type": kind, "param": None, "code": error.code}}


def event(data: Mapping[str, Any] | str, name: str = "") -> str:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"


_TEXTS = {None, "text", "input_text", "output_text", "summary_text", "reasoning_text"}  # types of parts


def text_of(content: Any, where: str) -> str:
    """The text of a message's content: a string, or parts with texts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return clean(content)
    if not isinstance(content, list):
        raise RequestError(f"{where} is a {type(content).__name__}; expected a text, or a list of parts.")
    return clean("".join(_part_text(part, where) for part in content))


def _part_text(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    key = "refusal" if kind == "refusal" else "text"
    if isinstance(part, dict) and (key == "refusal" or kind in _TEXTS) and isinstance(part.get(key), str):
        return str(part[key])
    raise RequestError(f"{where} has a part of the type {kind!r:.80}; this model reads text only.")


def known_fields(row: Mapping[str, Any], where: str, known: Iterable[str], notes: set[str]) -> None:
    """Note the fields of a message or a tool that have no effect; one that may carry conversation is refused."""
    for name, value in row.items():
        if value in (None, False, "", [], {}) or name in known:
            continue
        if name in _CARRIERS:
            raise RequestError(
                f"{where} has {name}, which is not read here. {_CARRIERS[name]}", code="unsupported_field"
            )
        notes.add(f"{where}.{name}")


_CARRIERS = {
    "function_call": "Send tool_calls, and the results with the role tool.",
    "audio": "This model reads text only.",
    "images": "This model reads text only.",
    "toolset_name": "Offer each tool by itself.",
}


def read_call(call_id: Any, name: Any, arguments: Any) -> ToolCall:
    """A call of an earlier turn, whose arguments are JSON text or an object."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    try:
        found = STRICT_JSON.decode(text) if text.strip() else {}
    except (ValueError, RecursionError):
        found = None
    valid = found if isinstance(found, dict) else None
    return ToolCall(str(call_id or ""), str(name or ""), clean(text), valid, None if valid is not None else "invalid")


def read_tools(
    body: Mapping[str, Any],
    notes: set[str],
    kinds: Sequence[str | None],
    schema_key: str = "parameters",
    within: str = "",
) -> tuple[ToolSpec, ...]:
    """The offered tools.

    Args:
        kinds: the types that functions have.
        within: the key that holds the function of a tool; empty: the tool is the function.
    """
    found = []
    for item in value_of(body, "tools", []):
        if isinstance(item, dict) and item.get("type") not in kinds:
            raise RequestError(
                f"tools has one of the type {item.get('type')!r:.80}; expected functions. Nothing runs on this server: "
                "offer it as a function with a schema, which the agent runs, or leave it out.",
                code="unsupported_tool",
            )
        function: Any = item.get(within) if within and isinstance(item, dict) else item
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            raise RequestError(f"tools has {function!r:.80}; expected a function with a name.")
        parameters = function.get(schema_key) or {"type": "object", "properties": {}}
        if not isinstance(parameters, dict):
            raise RequestError(f"{schema_key} of {name!r:.80} is {parameters!r:.80}; expected a JSON schema.")
        known_fields(function, "tools", {*_TOOL, schema_key}, notes)
        found.append(ToolSpec(clean(name), clean(str(function.get("description") or "")), parameters))
    return tuple(found)


_TOOL = {"name", "description", "type", "cache_control", "eager_input_streaming"}


def whole_number(body: Mapping[str, Any], *keys: str) -> int | None:
    """The first of these keys that is set; -1 is no limit, as some clients write it."""
    for key in keys:
        value = body.get(key)
        if value is None or (value == -1 and key != "n"):
            continue
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise RequestError(f"{key} is {value!r:.80}; expected a whole number from 1.")
        return value
    return None


def texts(body: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A text or a list of texts; empty if the key is not set."""
    value = body.get(key)
    return (value,) if isinstance(value, str) else tuple(map(str, value_of(body, key, [])))


def value_of(body: Mapping[str, Any], key: str, default: T) -> T:
    """A list or an object, as the default is one; the default if the key is not set."""
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, type(default)):
        kind = "a list" if isinstance(default, list) else "an object"
        raise RequestError(f"{key} is {value!r:.80}; expected {kind}.")
    return value


def answerable(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, if the model can answer them or continue the last one; with the tools' names in their results."""
    last = messages[-1]
    if len(messages) > 1 and last.role == "assistant" and not (last.content or last.tool_calls):
        messages = messages[:-1]  # an answer that is to begin anew
    if messages[-1].tool_calls:
        raise RequestError("The last message has tool calls without results. Send a result for each of them.")
    names: dict[str, str] = {}  # of the tools, which some chat templates show in results
    found = []
    for message in messages:
        names.update((call.id, call.name) for call in message.tool_calls)
        name = message.name or names.get(message.tool_call_id or "")
        found.append(replace(message, name=name) if message.role == "tool" else message)
    return tuple(found)


def require_messages(body: Mapping[str, Any], key: str) -> list[Any]:
    given = body.get(key)
    if not isinstance(given, list) or not given:
        raise RequestError(f"{key} is {given!r:.80}; expected a list of messages.")
    return given
