"""JSON schemas in the few words that chat templates know.

Some templates (gpt-oss', Gemma 4's, Seed-OSS') write a schema out in a form of their own, which knows types, texts to
choose from, items and properties. References, ``anyOf`` with null, ``const`` and an ``enum`` without a type become
"any" there, although every optional argument, dataclass and enum of Python has one of them. `inlined` says the same in
the words that they know. Arguments are checked against the schema as it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from rlfactory_core.utils.json_types import BY_NAME, JSON_TYPES, ONE, SEVERAL

Schema = Mapping[str, Any]

_MOST_PARTS = 2000  # of an inlined schema; references could multiply without end
_DEFINITIONS = ("$defs", "definitions")
_NOTES = {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "nullable", "$comment"}


def inlined(root: Schema) -> dict[str, Any]:
    """The schema without references, and with one type for each part where that says the same.

    A reference within what it refers to ends there, with the type and the name; one that leads nowhere stays.
    """
    return _without_references(root, simple=True)


def expanded(root: Schema) -> dict[str, Any]:
    """The schema without references, and else as it is."""
    return _without_references(root, simple=False)


def argument_types(root: Schema, argument: str) -> set[str]:
    """The JSON types of an argument's values, in which ``number`` includes integers; empty: all, or none is named."""
    holder = root
    for _ in range(20):  # a chain of references
        if "properties" in holder:
            break
        holder = _target(holder.get("$ref"), root) or {}
    properties = holder.get("properties")
    return _types(properties.get(argument), root, ()) if isinstance(properties, Mapping) else set()


def kind(value: Any) -> str:
    """The JSON name of a value's type."""
    if value is None:
        return "null"
    names = {bool: "boolean", str: "string", list: "array", int: "number", float: "number"}
    return names.get(type(value), "object")


def _target(reference: Any, root: Schema) -> Any:
    """What a reference within the same schema refers to; None if there is no such schema."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found: Any = root
    for part in unquote(reference).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping) and name in found:
            found = found[name]
        else:
            return None
    return found if isinstance(found, Mapping) else None


def _types(schema: object, root: Schema, within: tuple[str, ...]) -> set[str]:
    if not isinstance(schema, Mapping):
        return set()
    allowed: list[set[str]] = []
    if "type" in schema:
        names = [JSON_TYPES.get(name, name) for name in _listed(schema["type"]) if isinstance(name, str)]
        allowed.append({"number" if name == "integer" else name for name in names})
    if isinstance(schema.get("enum"), list):
        allowed.append({kind(value) for value in schema["enum"]})
    elif "const" in schema:
        allowed.append({kind(schema["const"])})
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in within:
        allowed.append(_types(_target(reference, root), root, (*within, reference)))
    for word in ("anyOf", "oneOf"):
        options = [_types(option, root, within) for option in schema.get(word) or ()]
        allowed.append(set().union(*options) if all(options) else set())
    allowed += [_types(part, root, within) for part in schema.get("allOf") or ()]
    known = [types for types in allowed if types]
    return set.intersection(*known) or known[0] if known else set()


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _without_references(root: Schema, simple: bool) -> dict[str, Any]:
    inliner = _Inliner(root, simple)
    try:
        found: dict[str, Any] = inliner.part(root, ())
    except (TypeError, AttributeError, RecursionError):  # what an agent offers need not be a JSON schema
        return dict(root)
    dropped = () if inliner.kept else (*_DEFINITIONS, "discriminator")
    return {key: value for key, value in found.items() if key not in dropped}


@dataclass(slots=True)
class _Inliner:
    """Copies a schema and its parts."""

    root: Schema
    simple: bool  # make each part simpler, too
    parts: int = 0
    kept: bool = False  # whether a reference stays

    def part(self, raw: Any, within: tuple[str, ...]) -> Any:
        """A part of the schema, inlined.

        Args:
            within: the references that it is reached through.
        """
        if not isinstance(raw, Mapping):
            return raw
        self.parts += 1
        target = _target(raw.get("$ref"), self.root)
        if target is None:
            self.kept = self.kept or "$ref" in raw
            found = self._children(raw, within)
        else:
            reference = str(raw["$ref"])
            rest = self._children({key: value for key, value in raw.items() if key != "$ref"}, within)
            if reference in within or self.parts > _MOST_PARTS:
                name = reference.rpartition("/")[2] or "value"
                return {"type": target.get("type", "object"), "description": f"{name}, as above", **rest}
            whole = self.part(target, (*within, reference))
            found = _merged(whole, rest) or {**whole, **rest}
        return _simple(found) if self.simple else found

    def _children(self, raw: Schema, within: tuple[str, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        parts = _choice(_choice(dict(raw), "anyOf"), "oneOf") if self.simple else raw
        for key, value in parts.items():
            if key in BY_NAME and key not in _DEFINITIONS and isinstance(value, Mapping):
                found[key] = {name: self.part(item, within) for name, item in value.items()}
            elif key in ONE and isinstance(value, Mapping):
                found[key] = self.part(value, within)
            elif key in SEVERAL | ONE and isinstance(value, list):
                found[key] = [self.part(item, within) for item in value]
            else:
                found[key] = value
        return found


def _merged(one: Schema, other: Schema) -> dict[str, Any] | None:
    """A schema that asks for both, whose notes are the other's; None if it needs two."""
    merged = {**one, **other}
    for key in one.keys() & other.keys() - _NOTES:
        mine, theirs = one[key], other[key]
        if mine == theirs:
            continue
        if key == "properties" and not any(mine[name] != theirs[name] for name in mine.keys() & theirs.keys()):
            merged[key] = {**mine, **theirs}
        elif key == "required":
            merged[key] = list(dict.fromkeys([*mine, *theirs]))
        else:
            return None
    return merged


def _simple(found: dict[str, Any]) -> dict[str, Any]:
    """The schema with one type, where its alternatives are null and one other, or values, or plain types."""
    if isinstance(found.get("allOf"), list):
        found = _all_of(found)
    for word in ("anyOf", "oneOf"):
        options = found.get(word)
        if isinstance(options, list) and options and all(isinstance(option, Mapping) for option in options):
            found = _alternatives(found, word, options)
    if "const" in found:
        found = {**_without(found, "const"), "enum": [found["const"]]}
    if isinstance(found.get("enum"), list):
        found = _enum(found, found["enum"])
    if isinstance(found.get("type"), list):
        others = [name for name in found["type"] if name != "null"]
        if others and (len(others) < len(found["type"]) or len(others) == 1):
            found = {**found, "type": _one(others), **_nullable(len(others) < len(found["type"]))}
    if found.get("default", "") is None or ("enum" in found and not isinstance(found.get("default", ""), str)):
        del found["default"]  # gpt-oss' template fails at it
    return found


def _values(option: Schema) -> list[Any] | None:
    """The values that an alternative chooses from, if it has no other rule."""
    if not option.keys() <= _NOTES | {"type", "enum", "const"}:
        return None
    return [option["const"]] if "const" in option else [None] if option.get("type") == "null" else option.get("enum")


def _all_of(found: dict[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] | None = _without(found, "allOf")
    for part in reversed(found["allOf"]):
        whole = None if whole is None or not isinstance(part, Mapping) else _merged(part, whole)
    return found if whole is None else whole


def _choice(found: dict[str, Any], word: str) -> dict[str, Any]:
    """Alternatives of which each has its values, as one choice; the notes on a value go into the description."""
    options = found.get(word)
    if not isinstance(options, list) or not all(isinstance(option, Mapping) and _values(option) for option in options):
        return found
    noted = (option for option in options if "const" in option and option.get("description"))
    notes = [f"{option['const']}: {option['description']}" for option in noted]
    rest = _without(found, word)
    if notes:
        rest["description"] = _sentence(rest, "; ".join(notes))
    return {**rest, "enum": [value for option in options for value in _values(option) or ()]}


def _alternatives(found: dict[str, Any], word: str, options: list[Schema]) -> dict[str, Any]:
    rest = _without(found, word)
    others = [option for option in options if option.get("type") != "null"]
    null = len(others) < len(options)
    if not others:
        return {**rest, "type": "null"}
    if len(others) == 1:
        merged = _merged(others[0], rest)
        return found if merged is None else {**merged, **_nullable(null)}
    nullable = _nullable(null or any(option.get("nullable") for option in others))
    if all("enum" in option and _values(option) for option in others):
        return {**rest, "type": "string", "enum": [value for option in others for value in option["enum"]], **nullable}
    if "type" in rest or not all(option.get("type") for option in others):
        return found
    plain = all(option.keys() <= _NOTES | {"type"} for option in others)
    types = _types_once(name for option in others for name in _listed(option["type"]))
    return {**(rest if plain else found), "type": _one(types), **nullable}


def _enum(found: dict[str, Any], values: list[Any]) -> dict[str, Any]:
    """Texts to choose from have a type; other values are in the description, because the templates show only texts."""
    others = [value for value in values if value is not None]
    rest = _without(found, "enum")
    if not others:
        return {**rest, "type": "null"}
    kinds = _types_once("integer" if type(value) is int else kind(value) for value in others)
    whole = {"type": _one(kinds), **rest, **_nullable(len(others) < len(values))}
    if kinds == ["string"]:
        return {**whole, "enum": others}
    choice = f"One of {', '.join(json.dumps(value, ensure_ascii=False) for value in others)}."
    return {**whole, "description": _sentence(rest, choice)}


def _types_once(names: Iterable[str]) -> list[str]:
    """Each type once; numbers may be integers."""
    once = list(dict.fromkeys(names))
    return [name for name in once if name != "integer"] if "number" in once else once


def _one(items: list[Any]) -> Any:
    return items[0] if len(items) == 1 else items


def _nullable(null: bool) -> dict[str, bool]:
    return {"nullable": True} if null else {}


def _without(schema: Schema, dropped: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != dropped}


def _sentence(schema: Schema, more: str) -> str:
    """Its description and one thing more, in one line."""
    return " ".join(filter(None, [schema.get("description"), more]))
