"""Hermes-style assistant text: ``<think>…</think>`` and ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``.

What models of the Qwen and Hermes families write, read in one pass: every character is looked at a bounded number of
times, nothing is evaluated, and no text makes it raise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from rlfactory_core.types import Message, ToolCall, ToolSpec

_TAG = re.compile(r"<think>|</think>|<tool_call>")
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,128})"')
_ARGUMENTS = re.compile(r'"arguments"\s*:\s*')
_CALL_TAG = re.compile(r"</?tool_call>")
_CLOSE = "</tool_call>"
_EXAMPLE = '{"name": "<function-name>", "arguments": {…}}'


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_no_constant)


class _Text(str):
    """JSON errors count the lines before them, which over many bad calls would be quadratic in the text."""

    __slots__ = ()

    def count(self, *_: Any) -> int:
        return 0

    def rfind(self, *_: Any) -> int:
        return 0


def parse_hermes(text: str, tools: Sequence[ToolSpec] = (), *, thinking_open: bool = False) -> Message:
    """Read one assistant turn, given without its stop token.

    Calls within a thinking block are not calls, and a block that is never closed holds all the rest. Text before a
    ``</think>`` that nothing opened is reasoning, its calls included: the generation prompt may have opened it
    (``thinking_open`` says that it did). Ids are ``call_0``, ``call_1``, … in the order of the text.

    A call that is not closed by ``</tool_call>`` is an error even where its JSON is whole: a model that is rewarded
    for half a tag unlearns the tag, and readers of other systems disagree on such text.
    """
    reasoning: list[str] = []
    content: list[str] = []
    calls: list[ToolCall] = []
    text = _Text(text)
    position = 0
    if thinking_open:
        position = _end_of_thinking(text, 0, reasoning)
    while match := _TAG.search(text, position):
        before = text[position : match.start()]
        if match.group() == "</think>":
            reasoning += [*content, before]
            content.clear()
            calls.clear()
            position = match.end()
            continue
        content.append(before)
        if match.group() == "<think>":
            position = _end_of_thinking(text, match.end(), reasoning)
        else:
            call, position = _read_call(text, match.end(), f"call_{len(calls)}")
            calls.append(call)
    content.append(text[position:])
    return Message(
        "assistant",
        "".join(content).strip(),
        reasoning="\n".join(part.strip() for part in reasoning).strip(),
        tool_calls=tuple(calls),
    )


def _end_of_thinking(text: str, start: int, reasoning: list[str]) -> int:
    end = text.find("</think>", start)
    reasoning.append(text[start:] if end < 0 else text[start:end])
    return len(text) if end < 0 else end + len("</think>")


def _read_call(text: str, start: int, call_id: str) -> tuple[ToolCall, int]:
    """The call whose body begins at ``start``, and where reading goes on.

    The JSON value is read first and its closing tag looked for behind it, so a tag within a string argument is text.
    """
    begin = _skip_space(text, start)
    try:
        value, end = _JSON.raw_decode(text, begin)
    except (ValueError, RecursionError) as error:
        value, end, reason = None, start, f"the call is not valid JSON ({_words(error)})"
    else:
        after = _skip_space(text, end)
        if text.startswith(_CLOSE, after):
            return _checked(call_id, text[begin:end], value), after + len(_CLOSE)
        reason = "text follows the call's JSON object"
    tag = _CALL_TAG.search(text, end)
    stop = tag.start() if tag else len(text)
    if tag and tag.group() == _CLOSE:
        return _refused(call_id, text[start:stop], reason), tag.end()
    return _refused(call_id, text[start:stop], f"the call is not closed by {_CLOSE}"), stop


def _skip_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


def _checked(call_id: str, body: str, value: Any) -> ToolCall:
    if not isinstance(value, dict):
        return _refused(call_id, body, f"the call is a JSON {_kind(value)}, not an object")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return _refused(call_id, body, 'the call has no "name" string')
    if "arguments" not in value:
        return _refused(call_id, body, 'the call has no "arguments" object')
    arguments = value["arguments"]
    if not isinstance(arguments, dict):
        return _refused(call_id, body, f'"arguments" is a JSON {_kind(arguments)}, not an object')
    return ToolCall(call_id, name, _arguments_text(body, arguments), arguments)


def _arguments_text(body: str, arguments: dict[str, Any]) -> str:
    """The arguments as they were written; JSON of them where the key's place in the text is ambiguous."""
    if match := _ARGUMENTS.search(body):
        try:
            value, end = _JSON.raw_decode(body, match.end())
        except (ValueError, RecursionError):
            value = None
        if value == arguments:
            return body[match.end() : end]
    return json.dumps(arguments, ensure_ascii=False)


def _refused(call_id: str, body: str, reason: str) -> ToolCall:
    name = _NAME.search(body)
    text = f"Invalid tool call: {reason}. Write <tool_call>{_EXAMPLE}{_CLOSE}."
    return ToolCall(call_id, name.group(1) if name else "", body.strip(), error=text)


def _words(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg[:1].lower() + error.msg[1:]
    return "nested too deeply" if isinstance(error, RecursionError) else "a number or constant that JSON does not have"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", str: "string", list: "array", int: "number", float: "number"}
    return names.get(type(value), "object")
