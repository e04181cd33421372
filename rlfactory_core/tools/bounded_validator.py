"""JSON-schema validators whose work is bounded: the model chooses the value, and often a server chose the schema.

Regular expressions run in RE2, in time that is linear in the text. Unique items are found in linear time, and so are
those of an enum. Of each of several schemas only the first error is looked for. All keywords together may do a multiple
of the value's size; schemas that refer to themselves could need exponentially more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import re2
from jsonschema import ValidationError
from jsonschema.validators import extend

_log = logging.getLogger(__name__)

Keyword = Callable[[Any, Any, Any, Mapping[str, Any]], Iterable[ValidationError] | None]

WORK, WORK_PER_NODE = 10_000, 30  # calls of keywords, for a value and for each of its nodes
QUICK_WORK = 300  # calls of keywords that take less than a millisecond
MOST_ERRORS = 1000  # that are collected; a message has a few


@dataclass(slots=True)
class _Work:
    """Of checking one value."""

    left: int
    enums: dict[int, frozenset[Any]] = field(default_factory=dict)  # the keys of the values, by the enum's id


_work: ContextVar[_Work] = ContextVar("work")


class TooMuchWorkError(Exception):
    """The value cannot be checked within the bound."""


def bounded(draft: Any) -> Any:
    """The validator of a draft, with the bound."""
    keywords: dict[str, Keyword] = {**draft.VALIDATORS, **_OWN}
    return extend(draft, {name: _counted(keyword) for name, keyword in keywords.items()})  # type: ignore[no-untyped-call]


def errors(validator: Any, value: Any, *, quick: bool = False) -> list[ValidationError]:
    """The first `MOST_ERRORS` errors of a value.

    Args:
        validator: made by a class that `bounded` has returned.
        quick: with the bound `QUICK_WORK`.

    Raises:
        TooMuchWorkError: see there.
        RecursionError: the value is nested too deeply.
    """
    token = _work.set(_Work(QUICK_WORK if quick else WORK + WORK_PER_NODE * _nodes(value)))
    try:
        return list(islice(validator.iter_errors(value), MOST_ERRORS))
    finally:
        _work.reset(token)


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text; True for a pattern that RE2 does not have, such as a lookahead."""
    compiled = _compiled(pattern)
    return compiled is None or compiled.search(text) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
        _log.warning("a JSON schema cannot be checked whole: pattern %.200s: %s", pattern, reason)
        return None


def _nodes(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_nodes, children))


def _counted(keyword: Keyword) -> Keyword:
    def counted(
        validator: Any, rule: Any, instance: Any, schema: Mapping[str, Any]
    ) -> Iterable[ValidationError] | None:
        work = _work.get()
        work.left -= 1
        if work.left < 0:
            raise TooMuchWorkError
        return keyword(validator, rule, instance, schema)

    return counted


def _pattern(validator: Any, pattern: str, instance: Any, schema: object) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: object
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, rule in patterns.items():
        for name, value in instance.items():
            if matches(pattern, name):
                yield from validator.descend(value, rule, path=name, schema_path=pattern)


def unknown_names(instance: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """The names that neither ``properties`` nor ``patternProperties`` have."""
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    return [
        name for name in instance if name not in properties and not any(matches(pattern, name) for pattern in patterns)
    ]


def _additional_properties(
    validator: Any, rule: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    unknown = unknown_names(instance, schema)
    if validator.is_type(rule, "object"):
        for name in unknown:
            yield from validator.descend(instance[name], rule, path=name)
    elif not rule and unknown:
        yield ValidationError(f"additional properties are not allowed: {', '.join(map(repr, unknown))}")


def _required(validator: Any, names: Any, instance: Any, schema: object) -> Iterator[ValidationError]:
    """Reports each missing name as ``validator_value``, where jsonschema has it in the message only."""
    if validator.is_type(instance, "object") and isinstance(names, list):  # of draft 3 it is a boolean
        for name in names:
            if name not in instance:
                yield ValidationError(f"{name!r} is missing", validator_value=[name])


def _unique_items(validator: Any, rule: Any, instance: Any, schema: object) -> Iterator[ValidationError]:
    if rule and validator.is_type(instance, "array") and len(set(map(_key, instance))) < len(instance):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _enum(validator: Any, values: Any, instance: Any, schema: object) -> Iterator[ValidationError]:
    enums = _work.get().enums
    if id(values) not in enums:
        enums[id(values)] = frozenset(map(_key, values))
    if _key(instance) not in enums[id(values)]:
        yield ValidationError(f"{instance!r} is none of the values")


def _any_of(validator: Any, rules: Any, instance: Any, schema: object) -> Iterator[ValidationError]:
    if not any(validator.evolve(schema=rule).is_valid(instance) for rule in rules):
        yield ValidationError(f"{instance!r:.80} fits none of the schemas")


def _one_of(validator: Any, rules: Any, instance: Any, schema: object) -> Iterator[ValidationError]:
    if sum(validator.evolve(schema=rule).is_valid(instance) for rule in rules) != 1:
        yield ValidationError(f"{instance!r:.80} does not fit exactly one of the schemas")


def _key(value: Any) -> Any:
    """Equal for values that are equal in JSON: 1 and 1.0, but not 1 and true."""
    if isinstance(value, dict):
        return frozenset((name, _key(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(map(_key, value))
    if value is None or type(value) in (int, float):
        return value
    return type(value), value if isinstance(value, (bool, str)) else repr(value)


_OWN: Mapping[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "required": _required,
    "uniqueItems": _unique_items,
    "enum": _enum,
    "anyOf": _any_of,
    "oneOf": _one_of,
}
