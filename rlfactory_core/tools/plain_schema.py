"""A quick yes for arguments that plainly fit a plain schema, so that most calls need no whole JSON-schema validator.

It only ever says yes where the validator of every draft would, and where the value can be written as JSON; anything
that it does not know (references, patterns, extra keys, …) is a no, and then the validator has the word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Fits = Callable[[Any], bool]

_NO_RULES = {"title", "description", "default", "examples", "format", "$schema", "$defs", "definitions", "$comment"}
_OF_OBJECTS = {"properties", "required", "additionalProperties"}
_RULES = {"type", "enum", "anyOf", "items", "minimum", "maximum"} | _OF_OBJECTS
_PLAIN_INT = 2**63  # larger ones may have too many digits to be written


def plainly_fits(schema: object) -> Fits:
    """The quick test of a schema, from draft 4 on, that was found to be one.

    It may say no to what fits, and never says yes to anything else.
    """
    if schema is True:
        schema = {}
    if not isinstance(schema, Mapping) or not schema.keys() <= _RULES | _NO_RULES:
        return _never
    rules = [_RULE[key](schema) for key in _RULE if key in schema]
    if "type" not in schema and not schema.keys().isdisjoint(_OF_OBJECTS):
        rules.append(_object(schema))
    if not rules:
        return _is_scalar
    return rules[0] if len(rules) == 1 else lambda value: all(rule(value) for rule in rules)


def _never(value: Any) -> bool:
    return False


def _is_string(value: Any) -> bool:
    if type(value) is not str:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _is_integer(value: Any) -> bool:
    return type(value) is int and -_PLAIN_INT <= value <= _PLAIN_INT


def _is_number(value: Any) -> bool:
    return type(value) is float or _is_integer(value)


def _is_boolean(value: Any) -> bool:
    return type(value) is bool


def _is_null(value: Any) -> bool:
    return value is None


def _is_scalar(value: Any) -> bool:
    return value is None or type(value) is bool or _is_number(value) or _is_string(value)


_SCALARS: Mapping[str, Fits] = {
    "string": _is_string,
    "integer": _is_integer,
    "number": _is_number,
    "boolean": _is_boolean,
    "null": _is_null,
}


def _type(schema: Mapping[str, Any]) -> Fits:
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    tests = [_of_type(kind, schema) for kind in kinds if isinstance(kind, str)]
    return tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)


def _of_type(kind: str, schema: Mapping[str, Any]) -> Fits:
    if kind == "object":
        return _object(schema)
    if kind == "array":
        items = schema.get("items", True)
        fits = _never if isinstance(items, list) else plainly_fits(items)
        return lambda value: type(value) is list and all(map(fits, value))
    return _SCALARS.get(kind, _never)


def _object(schema: Mapping[str, Any]) -> Fits:
    """Known keys only: one beside them is another rule's affair."""
    tests = {key: plainly_fits(value) for key, value in schema.get("properties", {}).items()}
    needed = frozenset(schema.get("required", ()))

    def fits(value: Any) -> bool:
        if type(value) is not dict or not needed <= value.keys():
            return False
        for key, item in value.items():
            test = tests.get(key)
            if test is None or not test(item):
                return False
        return True

    return fits


def _enum(schema: Mapping[str, Any]) -> Fits:
    words = frozenset(item for item in schema["enum"] if _is_string(item))
    return lambda value: type(value) is str and value in words


def _any_of(schema: Mapping[str, Any]) -> Fits:
    tests = [plainly_fits(item) for item in schema["anyOf"]]
    return lambda value: any(test(value) for test in tests)


def _minimum(schema: Mapping[str, Any]) -> Fits:
    least = schema["minimum"]
    return lambda value: _is_number(value) and value >= least


def _maximum(schema: Mapping[str, Any]) -> Fits:
    most = schema["maximum"]
    return lambda value: _is_number(value) and value <= most


_RULE: Mapping[str, Callable[[Mapping[str, Any]], Fits]] = {
    "type": _type,
    "enum": _enum,
    "anyOf": _any_of,
    "minimum": _minimum,
    "maximum": _maximum,
}
