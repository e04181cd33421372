"""Schemas of arguments that are not quite JSON schema: what is plain is read, the rest is named."""

from __future__ import annotations

from typing import Any

import pytest

from rlfactory_core.errors import UsageError
from rlfactory_core.tools.mending import mended
from rlfactory_core.tools.validation import ArgumentChecker
from rlfactory_core.types import ToolSpec

NONE = {"type": "object", "properties": {}}
TEXT = {"type": "string"}


def of(**schema: Any) -> dict[str, Any]:
    """The schema of the argument `a` of an object with these keywords."""
    return dict(mended({"type": "object", "properties": {"a": schema}}).schema["properties"]["a"])


@pytest.mark.parametrize("given", [None, {}, True, {"type": None}, {"properties": None}, {"type": ["object", "null"]}])
def test_a_tool_without_arguments(given: object) -> None:
    found = mended(given)
    assert (dict(found.schema), found.changes) == (NONE, ())


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"type": "OBJECT", "properties": {"a": TEXT}}, {"type": "object", "properties": {"a": TEXT}}),
        ({"properties": {"a": TEXT}}, {"type": "object", "properties": {"a": TEXT}}),
        ('{"properties": {"a": null}}', {"type": "object", "properties": {"a": {}}}),
        ({"anyOf": [NONE]}, {"type": "object", "anyOf": [NONE]}),
        ({**NONE, "required": None, "additionalProperties": "false"}, {**NONE, "additionalProperties": False}),
        ({**NONE, "required": "a"}, {**NONE, "required": ["a"]}),
        ({**NONE, "required": ["a", "a"]}, {**NONE, "required": ["a"]}),
        (
            {"properties": {"a": {"type": "string", "required": True}, "b": {"required": False}}},
            {"type": "object", "properties": {"a": TEXT, "b": {}}, "required": ["a"]},
        ),
    ],
)
def test_what_is_plain_is_read_as_it_is_meant(given: object, meant: dict[str, Any]) -> None:
    found = mended(given)
    assert (dict(found.schema), found.changes) == (meant, ())


def test_types_and_parts() -> None:
    assert of(type="Date") == of(type="str") == of(type="STRING") == TEXT
    assert of(type="any") == of(type=[]) == of(anyOf=None) == of(enum=None) == {}
    assert of(type=["int", "null"]) == {"type": ["integer", "null"]}
    assert of(type="str", nullable=True, enum=["x"]) == {
        "type": ["string", "null"],
        "nullable": True,
        "enum": ["x", None],
    }
    assert of(type="array", items="string") == {"type": "array", "items": TEXT}
    assert of(dependencies={"b": {"type": "date"}, "c": ["d"]}) == {"dependencies": {"b": TEXT, "c": ["d"]}}
    assert of(anyOf=[None, {"type": "float"}]) == {"anyOf": [{"type": "number"}]}
    assert of(default=None, const=None, examples=[None]) == {"default": None, "const": None, "examples": [None]}


@pytest.mark.parametrize(
    ("keywords", "change"),
    [
        ({"type": "colour"}, 'a.type is left out: there is no type "colour"'),
        ({"anyOf": []}, "a.anyOf is left out"),
        ({"enum": {"x": 1}}, "a.enum is left out"),
        ({"enum": []}, "a.enum is left out"),
        ({"minimum": "1"}, "a.minimum is left out"),
        ({"$ref": 5}, "a.$ref is left out: it is 5"),
    ],
)
def test_a_keyword_that_cannot_be_read_is_left_out_and_named(keywords: dict[str, Any], change: str) -> None:
    schema = {"type": "object", "properties": {"a": {**keywords, "description": "first"}, "b": TEXT}}
    found = mended(schema)
    assert dict(found.schema) == {"type": "object", "properties": {"a": {"description": "first"}, "b": TEXT}}
    assert len(found.changes) == 1
    assert f"properties.{change}" in found.changes[0]
    ArgumentChecker(ToolSpec("it", "", found.schema))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "it is []"),
        ("object", "the text 'object'"),
        (False, "it is false"),
        ({"type": "array"}, 'its type is "array"'),
    ],
)
def test_what_cannot_be_a_schema_of_arguments_is_refused(given: object, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("[", r"\[")):
        mended(given)


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    deep: dict[str, Any] = TEXT
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(UsageError, match="nested deeper than 64"):
        mended({"properties": {"a": deep}})


def test_a_valid_schema_stays_as_it_is() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "required": ["b"],
        "properties": {
            "a": {"$ref": "#/definitions/x"},
            "b": {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
        },
        "definitions": {"x": {"enum": ["1", None]}},
        "additionalProperties": {},
    }
    found = mended(schema)
    assert (dict(found.schema), found.changes) == (schema, ())
