"""Reads the tools of a trace: OpenAI's schemas, or those of xLAM and ToolACE, whose types have other names."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.errors import DataError
from rlfactory_core.tasks.messages import HALF, data_in
from rlfactory_core.types import ToolSpec

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
    **{name: name for name in ("object", "number", "string", "integer", "boolean", "array", "null")},
}
"""Names of types in the schemas of BFCL, xLAM and ToolACE -> JSON schema's; other names, such as ``any``, have none."""
_VALUES = ("default", "enum", "const", "examples")  # keywords whose values are no schemas
_TYPE = re.compile(r"(\w+)(?:\[(.*)\])?")


def tool_specs(value: Any, place: str) -> tuple[ToolSpec, ...]:
    """Tools in OpenAI's format, or as ``{name, description, parameters}``; the list may be JSON in a text.

    Raises:
        DataError: one of them has no name, or two have the same.
    """
    listed = data_in(value) if isinstance(value, str) else value
    if isinstance(listed, Mapping):
        listed = [listed]
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise DataError(f"{place} holds {str(value)[:200]!r}; expected a list of the schemas of tools.")
    specs = []
    for item in listed:
        entry = data_in(item) if isinstance(item, str) else item
        function = (entry.get("function") or entry) if isinstance(entry, Mapping) else {}
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not name:
            raise DataError(
                f"{place} holds the tool {str(item)[:200]!r}; expected its name, description and parameters."
            )
        specs.append(ToolSpec(name, str(function.get("description") or ""), _parameters(function, f"{place}: {name}")))
    if specs and (most := Counter(spec.name for spec in specs).most_common(1)[0])[1] > 1:
        raise DataError(f"{place} holds {most[1]} tools with the name {most[0]!r}.")
    return tuple(specs)


def _parameters(function: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """A JSON schema of an object; xLAM writes its properties alone, with ``optional`` in their types."""
    given = function.get("parameters")
    schema = data_in(given) if isinstance(given, str) else given
    if not isinstance(schema, Mapping):
        schema = {}
    if "properties" not in schema and schema.get("type") not in ("object", "dict"):
        each = {name: dict(value) for name, value in schema.items() if isinstance(value, Mapping)}
        schema = {"properties": each, "required": [name for name, value in each.items() if _needed(value)]}
    elif isinstance(beside := function.get("required"), list) and not schema.get("required"):
        schema = {**schema, "required": beside}  # where LLaMA-Factory's examples have it
    needed = {key: value for key, value in {"type": "object", "properties": {}}.items() if schema.get(key) is None}
    translated: Mapping[str, Any] = _translated({**schema, **needed})  # in the order of the file, as prompts show it
    if (wrong := no_json(translated)) is not None:
        raise DataError(f"{place} has parameters that are no JSON: {wrong}.")
    return translated


def no_json(value: Any) -> str | None:
    """Why a value cannot be written as JSON and encoded; None if it can."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError) as error:
        return str(error)
    return "half of a character" if HALF.search(text) else None


def _needed(schema: dict[str, Any]) -> bool:
    """Whether a property is required; a word of its own for that is no keyword of JSON schema, and taken out."""
    if isinstance(schema.get("required"), bool):
        return bool(schema.pop("required"))
    return "default" not in schema and "optional" not in str(schema.get("type", "")).lower()


def _translated(schema: Any) -> Any:
    """The schema with the names of types that JSON schema has.

    Nulls are absent keywords, because Arrow gives all schemas the same; only a default alone may well be null.
    """
    if isinstance(schema, list | tuple):
        return [_translated(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    meant = [key for key, value in schema.items() if value is None] == ["default"]
    for key, value in schema.items():
        if key == "type" and isinstance(value, str):
            found |= _typed(value)
        elif value is not None or meant:
            found[key] = value if key in _VALUES and "type" in schema else _translated(value)
    return found


def _typed(kind: str) -> dict[str, Any]:
    """The keywords of a type's name: ``List[int], optional`` is an array of integers."""
    text = kind.strip().lower()
    named = _TYPE.match(text.removeprefix("optional[") if text.startswith("optional[") else text)
    name = _TYPES.get(named[1]) if named else None
    if named is None or name is None:
        return {}
    inner = _typed(named[2]) if name == "array" and named[2] and "," not in named[2] else {}
    return {"type": name, **({"items": inner} if inner else {})}
