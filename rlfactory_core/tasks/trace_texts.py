"""Conversations whose tools, calls and results are written in their texts, as ToolACE and Hermes have them.

Their system message lists the tools and says how a call is written. A chat format writes both in its family's way, so
the message is left out. ToolACE writes calls as ``[NAME(KEY=VALUE), …]``, and their results as one JSON list. Hermes
(https://github.com/NousResearch/Hermes-Function-Calling) writes calls as ``<tool_call>{"name": …, "arguments": …}
</tool_call>``, and each result as ``<tool_response>…</tool_response>``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from rlfactory_core.chat.parsers.json_calls import parse_hermes
from rlfactory_core.chat.parsers.literals import read_python_call
from rlfactory_core.chat.parsers.turn import CallObject, MalformedError, skip_space
from rlfactory_core.errors import DataError
from rlfactory_core.tasks.messages import data_in
from rlfactory_core.tasks.trace_tools import tool_specs
from rlfactory_core.types import Message, ToolCall, ToolSpec

_TOOLACE = re.compile(r"functions in JSON format that you can invoke:\s*(?=\[)")
_HERMES = re.compile(r"(?s)<tools>\s*(\[.*?\]|\{.*?\})\s*</tools>")
_LIST = re.compile(r"(?s)\s*\[\s*[^\[\]{}\"']+\(.*\)\s*\]\s*")
_TAG, _RESULT = "<tool_call>", re.compile(r"(?s)<tool_response>\s*(.*?)\s*</tool_response>")


def tools_in(system: str, place: str) -> tuple[ToolSpec, ...] | None:
    """The tools that a system message of one of these data sets lists; None: it is another message."""
    where = f"{place}: the system message"
    if (found := _TOOLACE.search(system)) is not None:
        try:
            listed, _ = json.JSONDecoder().raw_decode(system, found.end())
        except ValueError as error:
            raise DataError(f"{where} has a list of functions that is no JSON: {error}.") from error
        return tool_specs(listed, where)
    if (found := _HERMES.search(system)) is not None:
        return tool_specs(found[1] if found[1].startswith("[") else found[1].splitlines(), where)
    return None


def with_calls(messages: Iterable[Message], tools: Sequence[ToolSpec], place: str) -> Iterator[Message]:
    """The messages with the calls that their texts hold, and one result for each call where one message has them all.

    Raises:
        DataError: a text that begins like calls holds none, or names another tool.
    """
    calls: tuple[ToolCall, ...] = ()
    for role, run in groupby(messages, key=lambda message: message.role):
        group = list(run)
        if role == "assistant":
            group = [message if message.tool_calls else _called(message, tools, place) for message in group]
            calls = group[-1].tool_calls
        elif role == "tool" and calls:
            texts = _results(group[0].content, len(calls)) if len(group) == 1 else [each.content for each in group]
            named = any(each.tool_call_id for each in group)
            if len(texts) == len(calls) and (not named or len(group) < len(calls)):
                pairs = zip(texts, calls, strict=True)
                group = [Message("tool", text, tool_call_id=call.id, name=call.name) for text, call in pairs]
        yield from group


def _called(message: Message, tools: Sequence[ToolSpec], place: str) -> Message:
    if _TAG in message.content:
        found = parse_hermes(message.content, tools)
        wrong = next((call.error for call in found.tool_calls if call.error), None)
        if wrong is not None:
            raise DataError(f"{place}: the turn {message.content[:200]!r} holds no call. {wrong}")
        return replace(found, reasoning=found.reasoning or message.reasoning)
    if not _LIST.fullmatch(message.content) or not tools:
        return message
    known = "|".join(re.escape(tool.name) for tool in sorted(tools, key=lambda tool: len(tool.name), reverse=True))
    head = re.compile(rf"\s*({known})\s*\(\s*")
    try:
        calls = list(_listed(message.content, head))
    except MalformedError as error:
        raise DataError(
            f"{place}: the turn {message.content[:200]!r} is no list of calls of the row's tools, "
            f"{', '.join(tool.name for tool in tools)}: {error.reason}."
        ) from error
    made = (
        ToolCall(f"call_{number}", call.name, json.dumps(call.arguments, ensure_ascii=False), call.arguments)
        for number, call in enumerate(calls)
    )
    return replace(message, content="", tool_calls=tuple(made))


def _listed(text: str, head: re.Pattern[str]) -> Iterator[CallObject]:
    position = skip_space(text, text.index("[") + 1)
    while True:
        call = read_python_call(text, position, head)
        yield call
        position = skip_space(text, call.end)
        if text.startswith("]", position):
            if skip_space(text, position + 1) != len(text):
                raise MalformedError("text follows the list", position)
            return
        if not text.startswith(",", position):
            raise MalformedError("neither a comma nor ] follows a call", position)
        position += 1


def _results(text: str, calls: int) -> Sequence[str]:
    """The results in one message: as many as there are calls, or else the whole text as one."""
    tagged = _RESULT.findall(text)
    if tagged and not _RESULT.sub("", text).strip():
        return tagged
    listed = data_in(text) if calls > 1 else None
    if isinstance(listed, list) and len(listed) == calls:
        return [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in listed]
    return [text]
