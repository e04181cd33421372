"""How a model's turn becomes actions of an OpenEnv environment: from the action schema that the server publishes.

- The schema has one field, which is a text: each turn of the model is this text.
- It has other fields: the model gets a tool ``act`` with this schema.
- It is that of MCP tools (``CallToolAction``): the model gets the environment's tools, and a call is a step.
- The server has tools and actions of its own: a call is made by MCP and gives no reward; only an action is a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.types import ToolCall, ToolSpec

ACT = "act"
_COMMON = "metadata"  # a field of every action, for the caller's own notes


@dataclass(frozen=True, slots=True)
class ActionForm:
    """How actions are written; one of ``field``, ``act`` and ``mcp_steps`` is set."""

    field: str | None = None  # the turn's text is this field of the action
    act: ToolSpec | None = None  # the action is the arguments of a call of this tool
    mcp_steps: bool = False  # a call of one of the environment's tools is a step
    fixed: Mapping[str, Any] | None = None  # fields that have only one value, such as ``type``
    help: str = ""  # what the model reads about ``field``

    def text_action(self, text: str) -> dict[str, Any]:
        """The action of a turn's text, for a form with ``field``."""
        assert self.field is not None
        return {**(self.fixed or {}), self.field: text}

    def call_action(self, call: ToolCall) -> dict[str, Any] | None:
        """The action of a call; None if it is another tool, or unknown."""
        if self.mcp_steps:
            return {"type": "call_tool", "tool_name": call.name, "arguments": dict(call.arguments or {})}
        return {**(self.fixed or {}), **(call.arguments or {})} if self.act and call.name == ACT else None

    def offered(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        """What the model is offered, if the environment has these tools."""
        return (self.act, *tools) if self.act else tools


def read_form(schema: Mapping[str, Any], field: str | None = None) -> ActionForm:
    """The form for an action schema.

    Args:
        field: the field that gets the turn's text, in place of the schema's only one.

    Raises:
        UsageError: there is no such field.
    """
    properties = {name: rule for name, rule in schema.get("properties", {}).items() if name != _COMMON}
    fixed = {name: rule["const"] for name, rule in properties.items() if isinstance(rule, Mapping) and "const" in rule}
    free = {name: rule for name, rule in properties.items() if name not in fixed}
    if field is not None:
        if field not in free:
            raise UsageError(f"task.field={field}: the environment's action has no such field. {nearest(field, free)}")
        return ActionForm(field=field, fixed=fixed, help=_help(field, free[field]))
    if not free or fixed.get("type") == "call_tool":
        return ActionForm(mcp_steps=True)
    if len(free) == 1:
        ((name, rule),) = free.items()
        if isinstance(rule, Mapping) and rule.get("type") == "string" and "enum" not in rule:
            return ActionForm(field=name, fixed=fixed, help=_help(name, rule))
    kept = {key: value for key, value in schema.items() if key in ("$defs", "definitions")}
    required = [name for name in schema.get("required", ()) if name in free]
    parameters = {"type": "object", "properties": free, "required": required, **kept}
    description = str(schema.get("description") or "Take an action in the environment.").strip()
    return ActionForm(act=ToolSpec(ACT, description, parameters), fixed=fixed)


def _help(name: str, rule: Any) -> str:
    described = str(rule.get("description") or "").strip() if isinstance(rule, Mapping) else ""
    return f"Your whole reply is the action's `{name}`" + (f": {described}" if described else ".")


def example(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """A value that fits a schema, for checks that play without a solution: what is required, as simple as possible.

    Args:
        root: the schema in which it stands.
    """
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        found = {**root.get("definitions", {}), **root.get("$defs", {})}.get(name)
        return example(found, root) if isinstance(found, Mapping) else None
    for value in (schema.get("const"), schema.get("default"), *schema.get("enum", ())[:1]):
        if value is not None:
            return value
    for choices in (schema.get("anyOf"), schema.get("oneOf"), schema.get("allOf")):
        if choices:
            return example(choices[0], root)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if kind == "object":
        return {name: example(schema["properties"][name], root) for name in schema.get("required", ())}
    if kind == "array":
        return [example(schema.get("items", {}), root) for _ in range(schema.get("minItems", 1))]
    if kind in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + ("exclusiveMinimum" in schema))
        return max(least, min(1, schema.get("maximum", 1)))
    return {"boolean": False, "null": None}.get(kind, "example".ljust(int(schema.get("minLength", 0)), "e"))
