"""Example arguments for tools, from their JSON schemas, and a policy that makes random calls."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.protocols import Tool
from rlfactory_core.runner import Policy
from rlfactory_core.tiny import call
from rlfactory_core.types import Message, Sample, ToolCall, ToolSpec, Trajectory

_DEPTH = 8  # of schemas that refer to themselves
_WORDS = 2  # of the prompt, as an argument
_FORMATS = {
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:00:00Z",
    "time": "12:00:00Z",
    "email": "ada@example.org",
    "uri": "http://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example_arguments(tool: ToolSpec) -> dict[str, Any]:
    """Arguments that fit the tool's schema, except for patterns; optional arguments are left out."""
    made = _example(tool.parameters, tool.parameters, 0)
    return dict(made) if isinstance(made, Mapping) else {}


def example_calls(tools: Sequence[Tool], played: Sequence[Trajectory] = ()) -> list[ToolCall]:
    """At least one call of each tool: the calls in ``played``, or else an example from the schema."""
    made = [call for each in played for turn in each.turns for call in turn.message.tool_calls if not call.error]
    names = {each.name for each in made}
    return made + [call(t.spec.name, **example_arguments(t.spec)) for t in tools if t.spec.name not in names]


def random_calls(calls: Sequence[ToolCall], turns: int, then: Policy, *, varied: bool = False) -> Policy:
    """Makes one random call a turn for some turns, then goes on as another policy.

    Args:
        varied: half of the calls have words of the prompt as their texts.
    """

    def policy(sample: Sample, messages: Sequence[Message], tools: Any, rng: random.Random) -> Message | str:
        if sum(message.role == "assistant" for message in messages) >= turns:
            return then(sample, messages, tools, rng)
        chosen = rng.choice(calls)
        words = [word for message in messages if message.role == "user" for word in message.content.split()]
        if varied and words and rng.random() < 0.5:
            start = rng.randrange(len(words))
            phrase = " ".join(words[start : start + _WORDS])
            changed = {k: phrase if isinstance(v, str) else v for k, v in (chosen.arguments or {}).items()}
            chosen = call(chosen.name, **changed)
        return Message("assistant", "", tool_calls=(chosen,))

    return policy


def _example(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return None
    if "$ref" in schema:
        found: Any = root
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
        return _example(found, root, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _example(schema[key][0], root, depth + 1)
    return _of_kind(schema, root, depth)


def _of_kind(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        needed, properties = schema.get("required", ()), schema.get("properties", {})
        return {name: _example(properties.get(name), root, depth + 1) for name in needed}
    if kind == "array":
        return [_example(schema.get("items"), root, depth + 1) for _ in range(schema.get("minItems", 1))]
    if kind in ("integer", "number"):
        return _number(schema, whole=kind == "integer")
    if kind in ("boolean", "null"):
        return False if kind == "boolean" else None
    text = _FORMATS.get(str(schema.get("format")), "example")
    return text.ljust(int(schema.get("minLength", 0)), "e")[: schema.get("maxLength")]


def _number(schema: Mapping[str, Any], *, whole: bool) -> float:
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + ("exclusiveMinimum" in schema))
    most = schema.get("maximum", schema.get("exclusiveMaximum", least + 2) - 1)
    number = max(least, min(1, most))
    step = schema.get("multipleOf")
    if step:
        number = -(-number // step) * step
    return int(number) if whole else float(number)
