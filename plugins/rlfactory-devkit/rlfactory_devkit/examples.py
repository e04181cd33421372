"""Example arguments for tools, from their JSON schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.protocols import Tool
from rlfactory_core.tiny import call
from rlfactory_core.types import ToolCall, ToolSpec, Trajectory

_DEPTH = 8  # of schemas that refer to themselves
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


def _example(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return None
    if "$ref" in schema:
        return _example(_referred(str(schema["$ref"]), root), root, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _example(schema[key][0], root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _of_kind(kind[0] if isinstance(kind, list) else kind, schema, root, depth)


def _of_kind(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    if kind == "object":
        needed, properties = schema.get("required", ()), schema.get("properties", {})
        return {name: _example(properties.get(name), root, depth + 1) for name in needed}
    if kind == "array":
        return [_example(schema.get("items"), root, depth + 1) for _ in range(schema.get("minItems", 1))]
    if kind in ("integer", "number"):
        return _number(schema, whole=kind == "integer")
    if kind == "boolean":
        return False
    if kind == "null":
        return None
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


def _referred(ref: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for part in ref.removeprefix("#/").split("/"):
        found = found.get(part, {}) if isinstance(found, Mapping) else {}
    return found
