"""The words of JSON schema: which keywords hold schemas, and Python's names of types, which many write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JSON_TYPES: Mapping[str, str] = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}
_OF_VALUES = ("enum", "const", "default", "examples")  # keywords that hold values, not schemas

# Keywords of all drafts that hold one schema for each name, one schema (``items`` also several), or a list of schemas.
BY_NAME = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
ONE = {"items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties"}
ONE |= {"propertyNames", "not", "if", "then", "else", "contentSchema"}
SEVERAL = {"anyOf", "oneOf", "allOf", "prefixItems"}


def with_json_types(schema: Any) -> Any:
    """A copy of a schema in which each ``type`` has JSON schema's name."""
    if isinstance(schema, list):
        return [with_json_types(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {keyword: _with_json_types(keyword, value) for keyword, value in schema.items()}


def _with_json_types(keyword: str, value: Any) -> Any:
    if keyword in _OF_VALUES:
        return value
    if keyword in BY_NAME and isinstance(value, Mapping):
        return {name: with_json_types(schema) for name, schema in value.items()}
    if keyword == "type" and isinstance(value, str):
        return JSON_TYPES.get(value, value)
    if keyword == "type" and isinstance(value, list):
        return [JSON_TYPES.get(name, name) if isinstance(name, str) else name for name in value]
    return with_json_types(value)
