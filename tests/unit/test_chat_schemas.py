"""Schemas of arguments as chat templates show them, and the types that they give to what a model wrote as text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import pytest
from chat_families import make_format

from rlfactory_core import Message, ToolSpec, tool
from rlfactory_core.chat.hidden import hidden_arguments
from rlfactory_core.chat.parsers.json_calls import typed
from rlfactory_core.chat.schemas import inlined

TEXT = {"type": "string"}
QUESTION = Message("user", "?")


class Year(Enum):
    OLD = "2023"
    NEW = "2024"


@dataclass
class Place:
    city: str
    zipcode: str = ""


@tool
def find(
    place: Place,
    unit: Literal["km", "mile"] | None = None,
    year: Year = Year.NEW,
    count: Literal[11, 22] = 11,
    tags: list[str] | None = None,
) -> str:
    """Find a place."""
    return ""


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"anyOf": [TEXT, {"type": "null"}], "default": None}, {**TEXT, "nullable": True}),
        ({"type": ["string", "null"]}, {**TEXT, "nullable": True}),
        ({"allOf": [TEXT], "description": "x"}, {**TEXT, "description": "x"}),
        ({"const": "a"}, {**TEXT, "enum": ["a"]}),
        ({"enum": ["a", None]}, {**TEXT, "enum": ["a"], "nullable": True}),
        ({"enum": [1, 2], "description": "x"}, {"type": "integer", "description": "x One of 1, 2."}),
        (
            {"oneOf": [{"const": "a", "description": "first"}, {"const": "b"}, {"type": "null"}]},
            {**TEXT, "enum": ["a", "b"], "description": "a: first", "nullable": True},
        ),
        ({"anyOf": [TEXT, {"type": "integer"}, {"type": "number"}]}, {"type": ["string", "number"]}),
        ({"$ref": "#/$defs/A", "description": "x"}, {**TEXT, "enum": ["a"], "description": "x"}),
        ({"anyOf": [{"$ref": "#/$defs/A"}, {"enum": ["b"]}]}, {**TEXT, "enum": ["a", "b"]}),
        ({"type": "array", "items": {"$ref": "#/$defs/A"}}, {"type": "array", "items": {**TEXT, "enum": ["a"]}}),
        ({"items": [{"$ref": "#/$defs/A"}]}, {"items": [{**TEXT, "enum": ["a"]}]}),
        ({"if": {"$ref": "#/$defs/A"}, "then": {}}, {"if": {**TEXT, "enum": ["a"]}, "then": {}}),
        ({"dependencies": {"b": {"$ref": "#/$defs/A"}}}, {"dependencies": {"b": {**TEXT, "enum": ["a"]}}}),
        ({"$ref": "#/$defs/Gone"}, {"$ref": "#/$defs/Gone"}),
        ({"$ref": "http://other/place"}, {"$ref": "http://other/place"}),
        ({"$ref": "#/$defs/Self"}, {"type": "object", "description": "Self, as above"}),
        (
            {"$ref": "#/$defs/Node"},
            {"type": "object", "properties": {"next": {"type": "object", "description": "Node, as above"}}},
        ),
    ],
)
def test_a_schema_in_the_words_of_templates(schema: dict[str, Any], shown: dict[str, Any]) -> None:
    definitions = {
        "A": {"const": "a"},
        "Self": {"$ref": "#/$defs/Self"},
        "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}},
    }
    whole = {"type": "object", "properties": {"it": schema}, "$defs": definitions}
    assert inlined(whole)["properties"]["it"] == shown


@pytest.mark.parametrize("part", [{"enum": [1], "description": 5}, {"allOf": [{"required": 1}, {"required": 2}]}])
def test_what_is_no_schema_is_shown_as_it_is(part: dict[str, Any]) -> None:
    assert inlined({"properties": {"it": part}}) == {"properties": {"it": part}}


def test_references_that_multiply_end() -> None:
    halves = {"type": "object", "properties": {}}
    definitions: dict[str, Any] = {"L0": TEXT}
    for level in range(1, 40):
        below = {"$ref": f"#/$defs/L{level - 1}"}
        definitions[f"L{level}"] = {**halves, "properties": {"a": below, "b": below}}
    assert len(str(inlined({"$ref": "#/$defs/L39", "$defs": definitions}))) < 1_000_000


@pytest.mark.parametrize("template", ["gptoss", "gemma4", "gemma4_v5"])
def test_templates_with_a_form_of_their_own_show_what_python_s_types_say(template: str) -> None:
    chat = make_format(template)
    assert not chat.abilities.schemas
    text = chat.initial_text([QUESTION], [find.spec])
    for word in ("city", "zipcode", "km", "mile", "2023", "2024", "22"):
        assert word in text
    assert hidden_arguments([find.spec], lambda tools: chat.initial_text([QUESTION], tools)) == ""


@pytest.mark.parametrize("template", ["qwen3", "glm4moe", "llama3_1", "qwen3_5_think"])
def test_templates_that_write_whole_schemas_get_them_as_they_are(template: str) -> None:
    chat = make_format(template)
    assert chat.abilities.schemas
    assert "#/$defs/Place" in chat.initial_text([QUESTION], [find.spec])


def test_what_a_template_hides_is_named() -> None:
    @tool
    def visit(at: Place | str, many: list[Place], n: int = 1) -> str:
        """Visit."""
        return ""

    chat = make_format("gptoss")
    found = hidden_arguments([find.spec, visit.spec], lambda tools: chat.initial_text([QUESTION], tools))
    assert "visit.at (city, zipcode), visit.many (city, zipcode). Say" in found
    assert "find." not in found
    text = {"type": "string"}
    named = ToolSpec("file", "", {"type": "object", "properties": {"title": text, "type": text, "description": text}})
    either = ToolSpec(
        "go", "", {"type": "object", "oneOf": [{"properties": {way: text}} for way in ("north", "south")]}
    )
    gemma = make_format("gemma4_v2")
    for chat, tool_, words in (
        (gemma, named, "file.type (type), file.description (description). Say"),
        (make_format("gptoss"), named, ""),
        (make_format("gptoss"), either, "go (north, south). Say"),
    ):
        said = hidden_arguments([tool_], lambda tools, chat=chat: chat.initial_text([QUESTION], tools))
        assert words in said
        assert bool(words) == bool(said)


ODD = ToolSpec(
    "t",
    "",
    {
        "type": "object",
        "properties": {
            "year": {"$ref": "#/$defs/Year"},
            "maybe": {"anyOf": [{"$ref": "#/$defs/Year"}, {"type": "null"}]},
            "both": {"allOf": [{"$ref": "#/$defs/Year"}]},
            "number": {"$ref": "#/$defs/Count"},
            "chosen": {"type": ["string", "integer"], "enum": ["2024"]},
            "loop": {"$ref": "#/$defs/Loop"},
            "gone": {"$ref": "#/$defs/Gone"},
        },
        "$defs": {"Year": {"enum": ["2023", "2024"]}, "Count": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
    },
)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("year", "2024"), ("maybe", "2024"), ("both", "2024"), ("chosen", "2024")),
        *(("number", 2024), ("loop", 2024), ("gone", 2024)),
    ],
)
def test_text_has_the_type_that_a_reference_leads_to(argument: str, value: object) -> None:
    assert typed("2024", ODD, argument) == value
    assert typed("null", ODD, "maybe") is None
    whole = ToolSpec("t", "", {"$ref": "#/$defs/All", "$defs": {"All": ODD.parameters, **ODD.parameters["$defs"]}})
    assert typed("2024", whole, argument) == value


def test_a_call_in_tags_with_a_reference() -> None:
    text = "<tool_call>\n<function=find>\n<parameter=year>\n2024\n</parameter>\n</function>\n</tool_call>"
    (call,) = make_format("own_qwen3-coder").parse_text(text, [find.spec]).tool_calls
    assert call.arguments == {"year": "2024"}
