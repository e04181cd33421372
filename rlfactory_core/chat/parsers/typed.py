"""Argument values that a model writes as bare text, given the types that the tool's JSON schema asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.chat.parsers.json_calls import kind, read_value
from rlfactory_core.chat.parsers.turn import MalformedError, Text, skip_space
from rlfactory_core.types import ToolSpec

_PYTHON_WORDS: Mapping[str, bool | None] = {"True": True, "False": False, "None": None}  # what templates show as such


def typed(text: str, tool: ToolSpec | None, argument: str) -> Any:
    """The value that ``text`` means for this argument of this tool.

    Text stays text where the schema asks for a string only. Else it is read as JSON (and Python's ``True``, ``False``
    and ``None``), and is that value where the schema asks for its type or for none; in every other case it stays text,
    and validation tells the model which type was wanted. So of ``anyOf: [string, object]`` an object is read where
    one is written; of ``anyOf: [string, null]`` ``5`` is the text and ``null`` is null. Nothing is guessed beyond
    that: no quotes are mended, no backslashes removed.

    Args:
        tool: None where it is unknown; then, as for an argument that the schema does not know, JSON wins over text.
    """
    schema = tool.parameters.get("properties", {}).get(argument) if tool else None
    types = _types(schema)
    if types == {"string"}:
        return text
    stripped = text.strip()
    if stripped in _PYTHON_WORDS:
        value = _PYTHON_WORDS[stripped]
    else:
        try:
            found = read_value(Text(text), 0)
        except MalformedError:
            return text
        if skip_space(text, found.end) != len(text):
            return text
        value = found.value
    return value if not types or kind(value) in types else text


def _types(schema: object) -> set[str]:
    """JSON's names of the types that a schema allows; empty where it allows all, or does not say."""
    if not isinstance(schema, Mapping):
        return set()
    if "type" in schema:
        given = schema["type"]
        names = {given} if isinstance(given, str) else set(given)
        return {"number" if name == "integer" else name for name in names}
    if "enum" in schema or "const" in schema:
        values: Sequence[Any] = schema.get("enum", [schema.get("const")])
        return {kind(value) for value in values}
    for word in ("anyOf", "oneOf"):
        if word in schema:
            options = [_types(option) for option in schema[word]]
            return set().union(*options) if all(options) else set()
    return next((types for part in schema.get("allOf", ()) if (types := _types(part))), set())
