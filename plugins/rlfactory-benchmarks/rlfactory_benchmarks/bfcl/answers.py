"""The accepted values of a question as calls: what `Bfcl.solve` plays."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_benchmarks.bfcl.data import Entry
from rlfactory_core import Message, ToolCall
from rlfactory_core.tiny import call

__all__ = ["accepted_calls", "expected_calls"]


def accepted_calls(question: Entry) -> Sequence[ToolCall]:
    """Calls that the official checker accepts; none where nothing should be called.

    Of relevance, any call is accepted: it is a call of the first function.
    """
    if "_relevance" in question.category:
        first = question.shown[0]
        return [call(first.name, **dict.fromkeys(first.parameters.get("required", ()), ""))]
    return [_accepted(question, *each) for truth in question.truth for each in truth.items()]


def _accepted(question: Entry, name: str, accepted: Mapping[str, Sequence[Any]]) -> ToolCall:
    schema = next(each for each in question.row["function"] if each["name"] == name)["parameters"]
    arguments = {}
    for key, values in accepted.items():
        kind = schema["properties"].get(key)  # None in parallel_multiple_26
        optional = values and values[0] == "" and key not in schema["required"]
        if kind is not None and not optional:
            arguments[key] = _first(values) if "java" not in question.category else _source(_first(values), kind)
    return call(name.replace(".", "_"), **arguments)


def expected_calls(question: Entry, messages: Sequence[Message]) -> Sequence[ToolCall]:
    """The expected calls of a conversation's turn, once the user has spoken; after them there are none."""
    if messages[-1].role != "user":
        return []
    turn = sum(message.role == "user" for message in messages[len(question.turns[0]) :])
    tools = [*question.shown, *(tool for late in question.late.values() for tool in late)]
    parameters = {tool.name: list(tool.parameters["properties"]) for tool in tools}
    return [_written(text, parameters) for text in question.truth[turn]]


def _written(text: str, parameters: Mapping[str, Sequence[str]]) -> ToolCall:
    """A call such as ``cd('a')``, whose arguments need not have names."""
    node: Any = ast.parse(text, mode="eval").body
    given = dict(zip(parameters[node.func.id], node.args, strict=False))
    given |= {each.arg: each.value for each in node.keywords}
    return call(node.func.id, **{name: ast.literal_eval(value) for name, value in given.items()})


def _first(accepted: Any) -> Any:
    """The first accepted value; where none is listed, an empty list."""
    return _plain(next((each for each in accepted if each != ""), "" if accepted else []))


def _plain(value: Any) -> Any:
    """A value whose objects have lists of accepted values, as one value."""
    if isinstance(value, dict):
        # A word alone is a list of its letters to the checker, in simple_java_64.
        lists = {key: each if isinstance(each, (list, str)) else [each] for key, each in value.items()}
        return {key: _first(each) for key, each in lists.items() if each[0] != ""}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _source(value: Any, schema: Mapping[str, Any]) -> str:
    """A value as text of Java or JavaScript, as the official converters read it."""
    if isinstance(value, str):
        return value
    kind = schema["type"]
    if kind == "HashMap":
        puts = " ".join(f'put("{key}", {json.dumps(each)});' for key, each in value.items())
        return f"new HashMap<String, Object>() {{{{ {puts} }}}}"
    if kind == "ArrayList":
        texts = [json.dumps(each) if isinstance(each, str) else _source(each, schema["items"]) for each in value]
        return f"new ArrayList<>(Arrays.asList({', '.join(texts)}))"
    if kind == "Array":  # whose texts it takes as they are
        return f"new Object[]{{{', '.join(_source(each, schema['items']) for each in value)}}}"
    return json.dumps(value) + ("L" if kind == "long" else "")
