"""What the three wire formats share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rlfactory_agents.exchange import ModelAnswer, ModelRequest, RequestError
from rlfactory_core.types import Message, ToolCall, ToolSpec
from rlfactory_core.utils.text import STRICT_JSON, clean


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


class WireFormat(Protocol):
    """One wire format."""

    path: str
    """The end of the address that requests of this format have."""

    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        """The request.

        Raises:
            RequestError: it is not one, or asks for what text models cannot do.
        """
        ...

    def write(self, reply: Reply) -> dict[str, Any]:
        """The whole answer."""
        ...

    def events(self, reply: Reply) -> Iterator[str]:
        """The answer as server-sent events."""
        ...

    def error(self, error: RequestError) -> dict[str, Any]: ...


def event(data: Mapping[str, Any] | str, name: str = "") -> str:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"


def text_of(content: Any, where: str) -> str:
    """The text of a message's content: a string, or parts with texts.

    Raises:
        RequestError: a part is not text.
    """
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
    for key in ("text", "refusal"):
        if isinstance(part, dict) and isinstance(part.get(key), str):
            return str(part[key])
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    raise RequestError(f"{where} has a part of the type {kind!r}; this model reads text only.")


def read_call(call_id: Any, name: Any, arguments: Any) -> ToolCall:
    """A call of an earlier turn, whose arguments are JSON text or an object."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    try:
        found = STRICT_JSON.decode(text) if text.strip() else {}
    except (ValueError, RecursionError):
        found = None
    valid = found if isinstance(found, dict) else None
    return ToolCall(str(call_id or ""), str(name or ""), clean(text), valid, None if valid is not None else "invalid")


def read_tool(function: Any, schema_key: str) -> ToolSpec:
    """An offered tool.

    Raises:
        RequestError: it has no name.
    """
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise RequestError(f"tools has {function!r:.80}; expected a function with a name.")
    parameters = function.get(schema_key) or {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise RequestError(f"{schema_key} of {name!r:.80} is {parameters!r:.80}; expected a JSON schema.")
    return ToolSpec(clean(name), clean(str(function.get("description") or "")), parameters)


def named_results(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages, with the tool's name in each result, which some chat templates show."""
    names: dict[str, str] = {}
    found = []
    for message in messages:
        names.update((call.id, call.name) for call in message.tool_calls)
        name = message.name or names.get(message.tool_call_id or "")
        found.append(replace(message, name=name) if message.role == "tool" else message)
    return tuple(found)


def whole_number(body: Mapping[str, Any], *keys: str) -> int | None:
    """The first of these keys that is set.

    Raises:
        RequestError: it is not a positive whole number.
    """
    for key in keys:
        value = body.get(key)
        if value is not None:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise RequestError(f"{key} is {value!r:.80}; expected a whole number from 1.")
            return value
    return None


def texts(body: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A text or a list of texts; empty if the key is not set."""
    value = body.get(key)
    return (value,) if isinstance(value, str) else tuple(map(str, listed(body, key)))


def listed(body: Mapping[str, Any], key: str) -> list[Any]:
    """A list; empty if the key is not set.

    Raises:
        RequestError: it is none.
    """
    value = body.get(key)
    if value is not None and not isinstance(value, list):
        raise RequestError(f"{key} is {value!r:.80}; expected a list.")
    return value or []


def overridden(body: Mapping[str, Any], *keys: str, neutral: Mapping[str, Any] = {}) -> tuple[str, ...]:
    """Which of these keys are set to something else than None and their neutral value."""
    return tuple(key for key in keys if body.get(key) is not None and body[key] != neutral.get(key))


def require_messages(body: Mapping[str, Any], key: str) -> list[Any]:
    """The list of messages.

    Raises:
        RequestError: there is none.
    """
    given = body.get(key)
    if not isinstance(given, list) or not given:
        raise RequestError(f"{key} is {given!r:.80}; expected a list of messages.")
    return given
