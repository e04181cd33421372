"""Finds what a model's chat template leaves out: fields of messages, and parts of tools' schemas.

It renders them once with marks in the place of their texts, and looks which of the marks are there. What the template
supports is thereby seen from what it writes. The marks of a schema have the length of its names and values where that
is possible, because some templates leave out what is long.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from rlfactory_core.chat.schemas import expanded, inlined
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.types import Message, ToolCall, ToolSpec

_MOST = 10  # arguments that a message names
_MOST_PARTS = 5  # of each
_KEYWORDS = frozenset(
    ("description", "type", "properties", "required", "nullable", "items", "enum", "default", "title")
)
_FIRST_NUMBER = 70_000_000  # no number of this size is in a template


@dataclass(slots=True)
class _Marks:
    """Marks schemas, and remembers what each mark stands for."""

    meanings: dict[str, str] = field(default_factory=dict)

    def text(self, meaning: str) -> str:
        mark = f"q{len(self.meanings)}z"  # in no other mark
        self.meanings[mark] = meaning
        return mark.ljust(len(meaning), "x")

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if type(value) is not int:
            return value
        number = _FIRST_NUMBER + len(self.meanings)
        self.meanings[str(number)] = str(value)
        return number

    def schema(self, raw: Any) -> Any:
        """The schema with all names and values marked."""
        if not isinstance(raw, Mapping):
            return raw
        found = {key: value for key, value in raw.items() if key not in ("default", "examples", "title")}
        names: dict[str, str] = {}
        for key, value in found.items():
            if key == "properties" and isinstance(value, Mapping):
                names = {name: name if name in _KEYWORDS else self.text(name) for name in value}
                found[key] = {names[name]: self.schema(item) for name, item in value.items()}
                for name in value.keys() & _KEYWORDS:  # a template may mistake it for one, as Gemma 4's first ones do
                    if isinstance(found[key][name], dict):
                        found[key][name]["description"] = self.text(name)
            elif key == "enum" and isinstance(value, list):
                found[key] = [self.value(item) for item in value]
            elif key == "const":
                found[key] = self.value(value)
            elif isinstance(value, list):
                found[key] = [self.schema(item) for item in value]
            else:
                found[key] = self.schema(value)
        if isinstance(found.get("required"), list):
            found["required"] = [names.get(name, name) for name in found["required"]]
        return found


def hidden_arguments(tools: Sequence[ToolSpec], render: Callable[[Sequence[ToolSpec]], str]) -> str:
    """What is hidden, in words; empty if nothing is.

    Args:
        render: the text of a prompt that offers the tools.
    """
    marks = _Marks()
    marked = [replace(tool, parameters=marks.schema(expanded(tool.parameters))) for tool in tools]
    text = render(marked)
    lost = {mark: meaning for mark, meaning in marks.meanings.items() if mark not in text}
    found: list[str] = []
    for tool, copy in zip(tools, marked, strict=True) if lost else ():
        beside = inlined(copy.parameters)  # such as `oneOf`
        properties = beside.pop("properties", None) or {}
        names = [f"{tool.name}.{name}" for name in inlined(tool.parameters).get("properties") or {}]
        places = [*zip(names, properties.items(), strict=False), (tool.name, beside)]
        for name, part in places:
            written = json.dumps(part)
            parts = [meaning for each, meaning in lost.items() if each in written]
            if parts:
                more = ", …" if len(parts) > _MOST_PARTS else ""
                found.append(f"{name} ({', '.join(islice(parts, _MOST_PARTS))}{more})")
    if not found:
        return ""
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return (
        f"The model's chat template does not show all of these arguments: {', '.join(found[:_MOST])}{more}. Say what "
        "is missing in the tools' descriptions, or give the arguments simpler types."
    )


@dataclass(frozen=True, slots=True)
class Unwritten:
    """One field of a message that does not reach the model."""

    index: int  # of the message, from 0
    role: str
    field: str
    by_design: bool  # templates of many families leave it out of earlier turns: thinking, and text beside calls

    @property
    def text(self) -> str:
        return f"{self.field} of message {self.index} ({self.role})"


def unwritten(chat: ChatFormat, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Unwritten]:
    """The fields of these messages that a prompt of them does not hold.

    Raises:
        ChatFormatError: the template does not accept such a conversation.
    """
    marks: dict[str, Unwritten] = {}
    marked: list[Message] = []

    def mark(field: str, by_design: bool = False) -> str:
        name = f"probe{len(marks)}x"
        marks[name] = Unwritten(len(marked), message.role, field, by_design)
        return name

    def called(call: ToolCall) -> ToolCall:
        arguments = {"probe": mark(f"the arguments of a call of {call.name}")} if call.arguments else {}
        return ToolCall(call.id, mark(f"a call of {call.name}"), json.dumps(arguments), arguments)

    for message in messages:
        calls = tuple(map(called, message.tool_calls))
        name = message.name if message.role == "tool" else message.name and mark("the name", by_design=True)
        content = mark("the text", bool(calls)) if message.content.strip() else message.content
        reasoning = message.reasoning and mark("the thinking", by_design=True)
        marked.append(replace(message, content=content, reasoning=reasoning, tool_calls=calls, name=name))
    text = chat.decode(chat.initial_ids(marked, tools))
    return [found for name, found in marks.items() if name not in text]
