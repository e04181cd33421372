"""Reads traces: whole conversations, from which a model learns what the assistant wrote, in the layouts of others.

- OpenAI, TRL, verl: ``messages`` and ``tools``, or ``prompt`` and ``completion`` or ``response``, texts or messages.
- ShareGPT: ``conversations`` of ``from`` and ``value`` (``function_call``, ``observation``), ``system``, ``tools``.
- xLAM, APIGen: ``query``, ``answers``, ``tools``, the latter two as JSON.
- ToolACE: ``system`` with the functions as JSON; ``conversations`` whose calls are ``[name(argument=value)]``.

What is not understood is refused, with its row.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlfactory_core.errors import DataError, nearest
from rlfactory_core.tasks.data import rows_of
from rlfactory_core.tasks.messages import data_in, read_prompt
from rlfactory_core.types import Message, ToolCall, ToolSpec

_WHOLE = ("messages", "conversations", "conversation")
_ENDS = ("completion", "response")  # of a row whose prompt is a column of its own
_TYPES: Mapping[str, str] = {
    "dict": "object",
    "float": "number",
    "double": "number",
    "str": "string",
    "char": "string",
    "int": "integer",
    "long": "integer",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "set": "array",
}
"""Names of types in the schemas of BFCL, xLAM and ToolACE -> JSON schema's; ``any`` has none there."""
_ANY = ("any", "object or array", "")
_FUNCTIONS = re.compile(r"(?s)^.*?functions in JSON format that you can invoke:\s*(\[.*\])\.?\s*Should you decide.*$")
"""ToolACE's system message. A chat format writes tools and the form of calls itself, so its words are left out."""
_CALLS = re.compile(r"(?s)^\s*\[\s*[^\[\](){}]+\(.*\)\s*\]\s*$")


@dataclass(frozen=True, slots=True)
class Trace:
    """One conversation, from which each turn of the assistant is learnt.

    Args:
        place: the file and the row, for errors.
        tools: that the model is shown; None: the file says nothing of tools.
    """

    place: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] | None = None

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The messages before the assistant's first turn."""
        first = next(number for number, message in enumerate(self.messages) if message.role == "assistant")
        return self.messages[:first]


def read_traces(path: Path) -> Iterator[Trace]:
    """All rows of a file of JSON lines, of a JSON array or of a parquet file.

    Raises:
        DataError: the file cannot be read, or a row is no trace; the message names the row.
        MissingExtraError: the file is parquet, and pyarrow is not installed.
    """
    for number, row in enumerate(rows_of(path)):
        yield read_trace(row, f"{path}, row {number} (from 0)")


def read_trace(row: Mapping[str, Any], place: str) -> Trace:
    """One row of any of the layouts.

    Raises:
        DataError: as `read_traces`.
    """
    row = {key: value for key, value in row.items() if value is not None}
    tools = tool_specs(row["tools"], f"{place}: column 'tools'") if row.get("tools") not in (None, "", []) else None
    if {"query", "answers"} <= row.keys():
        return _checked(Trace(place, _question_and_calls(row["query"], row["answers"], place), tools))
    column = next((name for name in _WHOLE if row.get(name)), None)
    if column is not None:
        messages = _messages(row[column], f"{place}: column {column!r}")
    elif row.get("prompt") and (end := next((name for name in _ENDS if row.get(name)), None)):
        messages = _messages(row["prompt"], f"{place}: column 'prompt'")
        messages += _messages(row[end], f"{place}: column {end!r}", "assistant")
    else:
        raise DataError(
            f"{place} has the columns {', '.join(row) or 'none'}; expected a conversation in 'messages' or "
            "'conversations', 'prompt' and 'completion', or 'query' and 'answers'."
        )
    if isinstance(system := row.get("system"), str) and system.strip():
        if messages[0].role == "system":
            raise DataError(f"{place} has two system messages, in the column 'system' and in {column!r}.")
        if functions := _FUNCTIONS.match(system):
            tools = tool_specs(functions[1], f"{place}: column 'system'")
            messages = tuple(_as_called(messages, [tool.name for tool in tools], place))
        else:
            messages = (Message("system", system), *messages)
    return _checked(Trace(place, messages, tools))


def tool_specs(value: Any, place: str) -> tuple[ToolSpec, ...]:
    """Tools in OpenAI's format, or as ``{name, description, parameters}``; the list may be JSON in a text.

    Raises:
        DataError: one of them has no name, or two have the same.
    """
    listed = data_in(value) if isinstance(value, str) else value
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise DataError(f"{place} holds {str(value)[:200]!r}; expected a list of the schemas of tools.")
    specs = []
    for item in listed:
        entry = data_in(item) if isinstance(item, str) else item
        function = entry.get("function", entry) if isinstance(entry, Mapping) else {}
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not name:
            raise DataError(
                f"{place} holds the tool {str(item)[:200]!r}; expected its name, description and parameters."
            )
        specs.append(ToolSpec(name, str(function.get("description") or ""), _parameters(function.get("parameters"))))
    name, count = Counter(spec.name for spec in specs).most_common(1)[0]
    if count > 1:
        raise DataError(f"{place} holds {count} tools with the name {name!r}.")
    return tuple(specs)


def _parameters(given: Any) -> Mapping[str, Any]:
    """A JSON schema of an object; xLAM writes its properties alone, with ``optional`` in their types."""
    schema = data_in(given) if isinstance(given, str) else given
    if not isinstance(schema, Mapping):
        return {"type": "object", "properties": {}}
    if "properties" not in schema and schema.get("type") not in ("object", "dict"):
        properties = {name: each for name, each in schema.items() if isinstance(each, Mapping)}
        needed = [name for name, each in properties.items() if not _is_optional(each)]
        schema = {"type": "object", "properties": properties, "required": needed}
    translated: Mapping[str, Any] = _translated({"type": "object", **schema})
    return translated


def _is_optional(schema: Mapping[str, Any]) -> bool:
    return "default" in schema or "optional" in str(schema.get("type", "")).lower()


def _translated(schema: Any) -> Any:
    """The schema with the names of types that JSON schema has; nulls, which Arrow writes, are absent keywords."""
    if isinstance(schema, list | tuple):
        return [_translated(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {key: _translated(value) for key, value in schema.items() if value is not None}
    if isinstance(kind := found.get("type"), str):
        name = kind.lower().split(",")[0].split("[")[0].strip()
        if name in _ANY:
            del found["type"]
        else:
            found["type"] = _TYPES.get(name, name)
    return found


def _messages(value: Any, place: str, role: str = "user") -> tuple[Message, ...]:
    read = read_prompt(value, place)
    return (Message("assistant" if role == "assistant" else "user", read),) if isinstance(read, str) else read


def _question_and_calls(query: Any, answers: Any, place: str) -> tuple[Message, ...]:
    """xLAM's row, whose answer is in words where no tool is called."""
    calls = data_in(answers) if isinstance(answers, str) else answers
    turn = {"tool_calls": calls} if isinstance(calls, list) and calls else {"content": str(answers).strip()}
    if turn.get("content") in ("", "[]"):
        raise DataError(f"{place}: column 'answers' holds no call and no text, so there is nothing to learn.")
    return _messages([{"role": "user", "content": str(query)}, {"role": "assistant", **turn}], place)


def _as_called(messages: Sequence[Message], tools: Sequence[str], place: str) -> Iterator[Message]:
    """ToolACE's messages with their calls, and with one result for each call, which one message lists."""
    calls: tuple[ToolCall, ...] = ()
    for given in messages:
        written = given.role == "assistant" and _CALLS.match(given.content)
        message = _with_calls(given, tools, place) if written else given
        results = data_in(message.content) if message.role == "tool" else None
        if isinstance(results, list) and len(results) == len(calls):
            for call, result in zip(calls, results, strict=True):
                text = json.dumps(result, ensure_ascii=False)
                yield Message("tool", text, tool_call_id=call.id, name=call.name)
        else:
            yield message
        calls = message.tool_calls


def _with_calls(message: Message, tools: Sequence[str], place: str) -> Message:
    """A turn of the assistant that is a list of calls in ToolACE's form."""
    names: list[str] = []

    def plain(found: re.Match[str]) -> str:
        names.append(found[2])
        return f"{found[1]}call("

    known = "|".join(map(re.escape, sorted(tools, key=len, reverse=True)))
    text = re.sub(rf"(^\[\s*|\)\s*,\s*)({known})\s*\(", plain, message.content.strip())
    try:
        tree = ast.parse(text, mode="eval").body
        calls = [_keywords(call) for call in tree.elts]  # type: ignore[attr-defined]
    except (SyntaxError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{place}: the turn {message.content[:200]!r} is no list of calls of {', '.join(tools)}."
        ) from error
    if len(names) != len(calls):
        raise DataError(f"{place}: the turn {message.content[:200]!r} calls a tool that the row does not have.")
    made = (
        ToolCall(f"call_{number}", name, json.dumps(arguments, ensure_ascii=False), arguments)
        for number, (name, arguments) in enumerate(zip(names, calls, strict=True))
    )
    return replace(message, content="", tool_calls=tuple(made))


class _Words(ast.NodeTransformer):
    """JSON's words as Python's."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        words = {"true": True, "false": False, "null": None}
        return ast.copy_location(ast.Constant(words[node.id]), node) if node.id in words else node


def _keywords(call: ast.expr) -> dict[str, Any]:
    """The arguments of a call; raises ValueError where one is not named or no literal."""
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError(f"{ast.unparse(call)} is no call with named arguments")
    return {str(each.arg): ast.literal_eval(_Words().visit(each.value)) for each in call.keywords}


def _checked(trace: Trace) -> Trace:
    """The trace up to the assistant's last turn, if it can be learnt from.

    Raises:
        DataError: it cannot.
    """
    messages, place = trace.messages, trace.place
    turns = [number for number, message in enumerate(messages) if message.role == "assistant"]
    if not turns:
        raise DataError(f"{place} has no turn of the assistant, so there is nothing to learn.")
    if not turns[0]:
        raise DataError(f"{place} begins with the assistant; expected the question before it.")
    messages = messages[: turns[-1] + 1]
    names = [tool.name for tool in trace.tools or ()]
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        what = f"{place}: message {number} (from 0)"
        if message.role == "tool":
            if not open_calls:
                raise DataError(f"{what} is the result of a tool that nobody has called.")
            open_calls.pop()
            continue
        if open_calls:
            raise DataError(f"{what} follows calls of {', '.join(open_calls)} that have no results.")
        if message.role == "assistant":
            if not (message.content.strip() or message.tool_calls):
                raise DataError(f"{what} is an empty turn of the assistant.")
            open_calls = [call.name for call in message.tool_calls]
            unknown = [name for name in open_calls if trace.tools is not None and name not in names]
            if unknown:
                raise DataError(f"{what} calls {unknown[0]!r}. {nearest(unknown[0], names)}")
    return replace(trace, messages=messages)
