"""Reads schemas of arguments that others wrote, and that are not quite JSON schema.

A server writes one slip, such as ``"required": null`` or ``"type": "date"``, into one schema, and all else is right. So
what is plain is read as it is meant, and a keyword that no draft accepts is left out and named. Only a schema that
cannot be one of an arguments object is refused, with its tool.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import UsageError
from rlfactory_core.tools.validation import schema_error
from rlfactory_core.utils.display import shortened
from rlfactory_core.utils.json_types import BY_NAME, JSON_TYPES, ONE, SEVERAL

MAX_DEPTH = 64  # of a schema; the model's arguments may not be nested deeper either
_MAX_CHANGES = 40  # a schema with more is something else
_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}
_OTHER_TYPES = {
    **dict.fromkeys(("text", "char", "date", "time", "datetime", "date-time", "uuid", "uri", "url", "email"), "string"),
    **dict.fromkeys(("int32", "int64", "long", "short"), "integer"),
    **dict.fromkeys(("double", "decimal", "float32", "float64"), "number"),
    "tuple": "array", "set": "array", "map": "object", "none": "null",
}  # fmt: skip # in lower case, beside Python's
_ANY = {"any", "mixed", "unknown", ""}
_VALUES = {"default", "const", "examples", "example"}  # null is a value there
_TEXTS = {"$ref", "$id", "id", "$schema", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "pattern"}
_DRAFT_3 = "draft-03"  # has another `required`, and accepts almost everything


@dataclass(frozen=True, slots=True)
class MendedSchema:
    """A schema of an arguments object that is valid in one of the drafts."""

    schema: Mapping[str, Any]
    changes: tuple[str, ...]  # what was left out or read as something else, with its place


def mended(raw: object) -> MendedSchema:
    """The schema as it is meant; none at all is that of a tool without arguments.

    Raises:
        UsageError: it cannot be one of an arguments object; the message says why, without the tool's name.
    """
    if isinstance(raw, str):
        text = raw
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError):
            raise UsageError(f"it is the text {shortened(text, 40)!r}, expected an object") from None
    raw = {} if raw is None or raw is True else raw
    if not isinstance(raw, Mapping):
        raise UsageError(f"it is {shortened(json.dumps(raw), 40)}, expected an object")
    changes: list[str] = []
    schema = dict(raw) if _DRAFT_3 in str(raw.get("$schema")) else _Cleaner(changes).schema(raw, "", 0)
    kinds = schema.get("type", "object")
    if "object" not in ([kinds] if isinstance(kinds, str) else kinds):
        raise UsageError(f"its type is {shortened(json.dumps(kinds), 40)}, and arguments are an object")
    schema = _valid({"type": "object"} | schema | {"type": "object"}, changes)
    if schema.keys().isdisjoint({"$ref", *SEVERAL}):
        schema.setdefault("properties", {})
    return MendedSchema(schema, tuple(changes))


def _valid(schema: dict[str, Any], changes: list[str]) -> dict[str, Any]:
    """The schema without what no draft accepts."""
    while (error := schema_error(schema)) is not None:
        path = list(error.path)
        if not path or len(changes) >= _MAX_CHANGES:
            raise UsageError(f"it is not a JSON schema: {shortened(error.message, 200)}")
        holder: Any = schema
        for key in path[:-1]:
            holder = holder[key]
        changes.append(f"{'.'.join(map(str, path))} is left out ({shortened(error.message, 100)})")
        if len(path) > 1 and path[-2] in BY_NAME:
            holder[path[-1]] = {}  # the name stays
        else:
            del holder[path[-1]]
    return schema


@dataclass(frozen=True, slots=True)
class _Cleaner:
    """Copies a schema, and reads its slips as they are meant."""

    changes: list[str]

    def schema(self, raw: Mapping[str, Any], at: str, level: int) -> dict[str, Any]:
        if level > MAX_DEPTH:
            raise UsageError(f"it is nested deeper than {MAX_DEPTH} levels")
        found = {
            str(keyword): value
            for keyword, item in raw.items()
            for value in self._value(str(keyword), item, f"{at}.{keyword}".lstrip("."), level)
        }
        self._required(found, raw, at)
        if found.get("nullable") is True and isinstance(found.get("type"), str) and found["type"] != "null":
            found["type"] = [found["type"], "null"]  # as OpenAPI 3.0 means it
            found |= {"enum": [*found["enum"], None]} if isinstance(found.get("enum"), list) else {}
        return found

    def _value(self, keyword: str, raw: Any, at: str, level: int) -> Iterator[Any]:
        """The keyword's value, or nothing for one that is left out."""
        if keyword in _VALUES:
            yield raw
        elif raw is None:
            return  # as if it were not there
        elif keyword == "type":
            kind = self._type(raw, at)
            if kind:
                yield kind
        elif keyword in BY_NAME and isinstance(raw, Mapping):
            yield {str(name): self._part(item, f"{at}.{name}", level) for name, item in raw.items()}
        elif keyword in ONE and not isinstance(raw, list):
            yield self._part(raw, at, level)
        elif keyword in SEVERAL | ONE and isinstance(raw, list):
            yield [self._part(item, f"{at}.{number}", level) for number, item in enumerate(raw) if item is not None]
        elif keyword in _TEXTS and not isinstance(raw, str):
            self.changes.append(f"{at} is left out: it is {shortened(json.dumps(raw), 40)}, expected a text")
        elif keyword == "enum" and raw == []:
            self.changes.append(f"{at} is left out: it allows no value")
        else:
            yield raw

    def _part(self, raw: Any, at: str, level: int) -> Any:
        """A schema within another one."""
        if isinstance(raw, Mapping):
            return self.schema(raw, at, level + 1)
        if raw is None:
            return {}
        if isinstance(raw, str):
            if raw.lower() in ("true", "false"):
                return raw.lower() == "true"
            kind = self._type(raw, at)
            return {"type": kind} if kind else {}
        return raw

    def _type(self, raw: Any, at: str) -> Any:
        """The type with JSON schema's name, or a list of such; nothing if no type is meant or known."""
        if isinstance(raw, list):
            kinds = [kind for item in raw for kind in [self._type(item, at)] if kind]
            return kinds[0] if len(kinds) == 1 else list(dict.fromkeys(map(str, kinds)))
        if raw is None:
            return ""
        name = str(raw).lower()
        kind = name if name in _TYPES else JSON_TYPES.get(name) or _OTHER_TYPES.get(name, "")
        if not kind and name not in _ANY:
            self.changes.append(f"{at} is left out: there is no type {shortened(json.dumps(raw), 40)}")
        return kind

    def _required(self, found: dict[str, Any], raw: Mapping[str, Any], at: str) -> None:
        """Make it a list of names; a property that says it of itself is meant as in draft 3."""
        written = found.get("required", [])
        names = [written] if isinstance(written, str) else written if isinstance(written, list) else []
        if written is True and not at:
            self.changes.append("required is left out: it is true, expected a list of names")
        elif not isinstance(written, (str, list, bool)):
            return  # no draft accepts it
        properties = raw.get("properties")
        for name, item in properties.items() if isinstance(properties, Mapping) else ():
            if isinstance(item, Mapping) and item.get("required") is True:
                names = [*names, str(name)]
        wrong = [name for name in names if not isinstance(name, str)]
        if wrong:
            self.changes.append(f"{at}.required is read without {shortened(json.dumps(wrong), 40)}".lstrip("."))
        names = list(dict.fromkeys(name for name in names if isinstance(name, str)))
        if names:
            found["required"] = names
        elif written != []:
            found.pop("required")
