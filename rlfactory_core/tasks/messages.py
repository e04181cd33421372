"""Reads the messages of a user's own data as they are found: in OpenAI's format, in ShareGPT's, or as JSON in a text.

Every field that belongs to the conversation reaches the `Message`. What is not understood is refused. Arrow gives all
messages of a file the same fields, and all arguments the same keys, so null stands for a field that is not there.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any

from rlfactory_core.errors import DataError
from rlfactory_core.types import Message, Role, ToolCall
from rlfactory_core.utils.text import STRICT_JSON

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
_REASONING = ("reasoning_content", "reasoning", "thinking")
_READ = frozenset(("role", "from", "content", "value", "name", "tool_calls", "function_call", "tool_call_id"))
_BESIDE = frozenset(
    ("annotations", "author", "created_at", "date", "id", "index", "loss", "loss_weight", "metadata", "model", "score")
)
_BESIDE |= {"source", "timestamp", "token_count", "train", "trainable", "turn", "type", "weight"}
"""Fields about a message, which no chat template writes."""
_KNOWN = _READ | _BESIDE | {"refusal", *_REASONING}
_PARTS: Mapping[str, str] = {
    **dict.fromkeys(("text", "input_text", "output_text"), "text"),
    **dict.fromkeys(("thinking", "reasoning"), "thought"),
    "tool_call": "call",
}
"""Types of parts. LLaMA-Factory has the text of each in ``value``, and calls as JSON."""
_TEXT_KEYS: Mapping[str, str] = {"text": "text", "thought": "thinking"}
_ADJACENT = re.compile(r"['\"]\s+['\"]")  # texts without a comma between them: numpy's way to write a list
_PRINTED = re.compile(r"['\"}\]]\s+['\"{\[]|\barray\(\[")  # data as numpy prints it, which nothing reads again
_SAID = rf"['\"](?:role|from)['\"]\s*:\s*['\"](?:{'|'.join(_ROLES)})['\"]"
_BROKEN = re.compile(rf"(?s)\s*\[\s*\{{(?=.*['\"](?:content|value)['\"]\s*:).*{_SAID}")  # messages, and no JSON
_MESSAGES = ("messages", "conversations", "conversation", "prompt")  # keys of an object that holds a conversation
_RESULT = re.compile(r"(?s)\s*<tool_response>\s*((?:(?!</?tool_response>).)*?)\s*</tool_response>\s*")
HALF = re.compile("[\ud800-\udfff]")  # a surrogate of UTF-16 that is alone; json joins the pairs


def data_in(text: str) -> Any:
    """The list or the object that a text wholly is, as JSON or as Python writes it; else None."""
    text = text.strip()
    if text[:1] + text[-1:] not in ("[]", "{}"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        if _ADJACENT.search(text):
            return None
        try:
            with warnings.catch_warnings(action="ignore"):  # of escapes that are none
                found = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    return None if HALF.search(json.dumps(found, ensure_ascii=False, default=str)) else found


def looks_printed(text: str) -> bool:
    """Whether a text is a list or an object as numpy prints it, without commas or with ``array(…)``."""
    text = text.strip()
    whole = text[:1] + text[-1:] in ("[]", "{}") or (text.startswith("array([") and text.endswith(")"))
    return whole and data_in(text) is None and _PRINTED.search(text) is not None


def _unquoted(text: str) -> str:
    """The text in a JSON text that is wholly a list or an object, which was written as JSON twice."""
    if re.match(r'\s*"\s*[\[{]', text) and text.rstrip().endswith('"'):
        with suppress(ValueError):
            return str(json.loads(text))
    return text


def read_prompt(value: Any, place: str) -> str | tuple[Message, ...]:
    """A row's prompt: a text, one message, or a list of messages; the latter two may be JSON in a text.

    Args:
        place: names the row and its column in errors.

    Raises:
        DataError: it is empty, or a message cannot be read.
    """
    value = messages_in(value, place)
    if isinstance(value, str):
        return value
    messages = read_messages(value, place)
    if not any(message.content.strip() for message in messages):
        raise DataError(f"{place} holds only empty messages.")
    return messages


def messages_in(value: Any, place: str) -> str | Sequence[Any]:
    """A prompt's text, or its messages as they stand; raises as `read_prompt`."""
    if isinstance(value, str) and value.strip():
        found = data_in(_unquoted(value))
        if not _has_role(found) and _holder(found) is None:
            if found is None and _BROKEN.match(value):
                raise DataError(f"{place} begins like messages as JSON, and cannot be read: {value[:200]!r}.")
            return value
        value = found
    if isinstance(value, Mapping):
        if (key := _holder(value)) is not None:
            raise DataError(f"{place} is an object with messages in {key!r}; write data.columns.prompt=COLUMN.{key}.")
        value = [value] if _has_role(value) else value
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        raise DataError(f"{place} is empty or not a prompt; expected a text or a list of messages.")
    return value


def read_messages(items: Sequence[Any], place: str) -> tuple[Message, ...]:
    """One message for each item, of which the assistant's stand in the same order; raises as `read_prompt`."""
    reader = _Conversation(place)
    return _in_order([reader.message(item) for item in items])


def role_of(item: Mapping[str, Any]) -> Role | None:
    """The role of a message as it stands; None if it has none that is known."""
    said = item.get("role", item.get("from"))
    return _ROLES.get(said.lower()) if isinstance(said, str) else None


def _in_order(messages: list[Message]) -> tuple[Message, ...]:
    """The messages, with the results of a turn in the order of its calls: many templates write no ids of calls."""
    for start, turn in enumerate(messages):
        order = [call.id for call in turn.tool_calls]
        results = list(takewhile(lambda message: message.role == "tool", messages[start + 1 :])) if order[1:] else []
        if sorted(str(each.tool_call_id) for each in results) == sorted(order):
            results.sort(key=lambda message: order.index(str(message.tool_call_id)))
            messages[start + 1 : start + 1 + len(results)] = results
    return tuple(messages)


def _holder(found: Any) -> str | None:
    """The key of an object under which its messages are."""
    return next((key for key in _MESSAGES if isinstance(found, Mapping) and _has_role(found.get(key))), None)


def _has_role(found: Any) -> bool:
    items = [item for item in (found if isinstance(found, list) else [found]) if isinstance(item, Mapping)]
    return any({"role", "from"} & item.keys() and {"content", "value", "tool_calls"} & item.keys() for item in items)


@dataclass(slots=True)
class _Conversation:
    """Reads one message after the other; a result belongs to the first call before it that has none."""

    place: str
    open: dict[str, str] = field(default_factory=dict)  # the calls without a result: id -> name
    names: dict[str, str] = field(default_factory=dict)  # of all calls

    def wrong(self, item: Any, expected: str) -> DataError:
        return DataError(f"{self.place} holds the message {str(item)[:200]!r}; expected {expected}.")

    def message(self, item: Any) -> Message:
        given = {key: value for key, value in item.items() if value is not None} if isinstance(item, Mapping) else {}
        said, role = given.get("role", given.get("from")), role_of(given)
        if role is None:
            roles = "system, developer, user, assistant or tool"
            raise self.wrong(item, f"{{role, content}} with a text and one of the roles {roles}")
        self._refuse_others(given, item)
        content, thought = self._content(given.get("content", given.get("value")), role, item)
        reasoning = next((given[key] for key in _REASONING if given.get(key)), thought)
        if not isinstance(reasoning, str) or (reasoning and role != "assistant"):
            raise self.wrong(item, "reasoning as a text, in a message of the assistant")
        refusal = given.get("refusal", "")
        if refusal and not content:
            content = str(refusal)
        if role == "tool":
            call_id, name = self._answered(given)
            inner = _RESULT.fullmatch(content or "")  # templates write such tags themselves
            return Message("tool", inner[1] if inner else content or "", tool_call_id=call_id, name=name)
        if said == "function_call":
            listed, content = data_in(content or ""), ""
            calls = self._calls(listed if isinstance(listed, list) else [listed], item)
        else:
            calls = self._calls(self._listed_calls(given, item), item)
        if calls and role != "assistant":
            raise self.wrong(item, "calls of tools in messages of the assistant only")
        if content is None and not calls:
            raise self.wrong(item, "a content, which may be null beside tool calls only")
        return Message(role, content or "", reasoning=reasoning, tool_calls=calls, name=given.get("name"))

    def _refuse_others(self, given: Mapping[str, Any], item: Any) -> None:
        other = [key for key, value in given.items() if key not in _KNOWN and value not in ("", [], {}, False)]
        if other:
            raise self.wrong(
                item,
                f"no field {', '.join(map(repr, other))}, which no chat template writes. Take it out, or put its text "
                "into the content",
            )

    def _content(self, content: Any, role: Role, item: Any) -> tuple[str | None, str]:
        """The text of a content, and of the thinking in its parts; None if there is none."""
        if content is None or isinstance(content, str):
            return content, ""
        parts = [_without_nulls(part) for part in content] if isinstance(content, list) else []
        data = role == "tool" and all(isinstance(part, str) for part in parts)
        kinds = [_kind(part) for part in parts]
        if parts and not data and all(kinds):
            texts, thoughts = (
                "".join(_text_of(part) for part, kind in zip(parts, kinds, strict=True) if kind == wanted)
                for wanted in ("text", "thought")
            )
            return (None if not texts and "call" in kinds else texts), thoughts
        if role == "tool":  # a result as data
            try:
                return json.dumps(_without_nulls(content), ensure_ascii=False), ""
            except TypeError as error:
                raise self.wrong(item, f"a result that can be written as JSON ({error})") from error
        if content == []:
            return None, ""
        types = sorted({str(part.get("type") if isinstance(part, Mapping) else part)[:40] for part in parts})
        raise self.wrong(item, f"{{role, content}} with a text, or parts with texts; got {', '.join(types) or content}")

    def _listed_calls(self, given: Mapping[str, Any], item: Any) -> Sequence[Any]:
        calls = given.get("tool_calls", [])
        calls = data_in(calls) if isinstance(calls, str) and calls.strip() else calls or []
        if not isinstance(calls, list | tuple):
            raise self.wrong(item, "tool_calls as a list")
        content = given.get("content")
        called = [part["value"] for part in content if _kind(part) == "call"] if isinstance(content, list) else []
        return [*calls, *called, *([given["function_call"]] if given.get("function_call") else [])]

    def _calls(self, items: Sequence[Any], item: Any) -> tuple[ToolCall, ...]:
        found = []
        for each in items:
            data = data_in(each) if isinstance(each, str) else each
            call = _without_nulls(data) if isinstance(data, Mapping) else {}
            function = call.get("function", call)
            name = function.get("name") if isinstance(function, Mapping) else None
            if not isinstance(name, str) or not name or call.get("type", "function") != "function":
                raise self.wrong(item, f"tool calls with the name and the arguments of a function; got {each!r:.200}")
            given = function.get("arguments", function.get("parameters"))
            arguments = _arguments(given)
            if arguments is None:
                raise self.wrong(item, f"arguments of {name} that are a JSON object; got {given!r:.200}")
            unused = (f"call_{number}" for number in count(len(self.names)) if f"call_{number}" not in self.names)
            call_id = str(call.get("id", "")) or next(unused)
            try:
                text = given if isinstance(given, str) and given.strip() else json.dumps(arguments, ensure_ascii=False)
            except TypeError as error:
                raise self.wrong(item, f"arguments of {name} that can be written as JSON ({error})") from error
            found.append(ToolCall(call_id, name, text, arguments))
            self.open[call_id] = self.names[call_id] = name
        return tuple(found)

    def _answered(self, given: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """The id of the call that a result answers, and the tool's name."""
        name = given.get("name")
        waiting: Iterator[str] = (call for call, of in self.open.items() if name in (None, of))
        call_id = str(given.get("tool_call_id", "")) or next(waiting, None)
        self.open.pop(call_id or "", None)
        return call_id, name or self.names.get(call_id or "")


def _kind(part: Any) -> str | None:
    """What a part of a content is: a text, a thought or a call; None: something else, such as an image."""
    if isinstance(part, str):
        return "text"
    kind = _PARTS.get(str(part.get("type", "text"))) if isinstance(part, Mapping) else None
    return kind if kind and isinstance(part.get("value", part.get(_TEXT_KEYS.get(kind, ""))), str) else None


def _text_of(part: Any) -> str:
    if isinstance(part, str):
        return part
    text: str = part.get("value", part.get(_TEXT_KEYS[str(_kind(part))]))
    return text


def _without_nulls(value: Any) -> Any:
    """Data without the keys whose value is null; Arrow's maps, lists of pairs, as mappings."""
    if isinstance(value, list) and value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
        value = dict(value)
    if isinstance(value, Mapping):
        return {str(key): _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list | tuple) else value


def _arguments(given: Any) -> dict[str, Any] | None:
    """The arguments of a call; None if they are no object. A text may hold JSON that is encoded twice."""
    try:
        for _ in range(2):
            if isinstance(given, str):
                given = STRICT_JSON.decode(given) if given.strip() else {}
                if isinstance(given, dict):
                    return given
    except (ValueError, RecursionError):
        return None
    found = {} if given is None else _without_nulls(given)
    return found if isinstance(found, dict) else None
