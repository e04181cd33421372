"""What the model wrote, checked against the tool's schema: named mistakes, and never an exception."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tool_calls import CONTEXT, echo, invoke, manage, write

from rlfactory_core.errors import UsageError
from rlfactory_core.tools import DefaultToolManager, bounded_validator, tool
from rlfactory_core.tools.validation import ArgumentChecker
from rlfactory_core.types import FaultKind, ToolCall, ToolResult, ToolSpec


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (write("echo", {}), "wrong arguments for echo: argument 'text' (string: what to say.) is missing"),
        (
            write("echo", {"text": "x", "tmes": 2}),
            "wrong arguments for echo: unknown argument \"tmes\". Did you mean 'times'?",
        ),
        (
            write("echo", {"text": "x", "times": "two"}),
            "wrong arguments for echo: 'times' must be of type integer, not \"two\"",
        ),
        (write("ecoh", {"text": "x"}), "there is no tool \"ecoh\". Did you mean 'echo'?"),
        (write("echo", None, error="The call is not JSON."), "The call is not JSON."),
        (write("echo", None), "the call has no arguments"),
    ],
)
def test_what_the_model_wrote_wrongly(call: ToolCall, message: str) -> None:
    result = invoke(call, echo)
    assert (result.content, result.fault, result.attempts) == (f"Error: {message}", FaultKind.POLICY, 0)


def test_nested_and_listed_values_are_named_by_their_place() -> None:
    @tool
    async def plan(stops: list[dict[str, int]]) -> str:
        return "ok"

    result = invoke(write("plan", {"stops": [{"a": 1}, {"a": "x" * 500}]}), plan)
    assert result.content.startswith("Error: wrong arguments for plan: 'stops[1].a' must be of type integer, not \"xxx")
    assert len(result.content) < 200


def checked(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    return ArgumentChecker(ToolSpec("t", "", schema)).problem(arguments)


@pytest.mark.parametrize(
    ("schema", "arguments", "problem"),
    [
        ({"n": {"type": "int"}}, {"n": 2}, None),
        ({"n": {"type": "int"}}, {"n": "two"}, "'n' must be of type integer, not \"two\""),
        ({"n": {"type": ["float", "null"]}}, {"n": None}, None),
        ({"rows": {"type": "list", "items": {"type": "dict", "properties": {"ok": {"type": "bool"}}}}},
         {"rows": [{"ok": 1}]}, "'rows[0].ok' must be of type boolean, not 1"),
        ({"type": {"type": "str"}, "default": {"type": "str"}}, {"type": "x", "default": 1},
         "'default' must be of type string, not 1"),
        ({"kind": {"enum": [{"type": "int"}]}}, {"kind": {"type": "int"}}, None),
    ],
)  # fmt: skip
def test_types_with_names_of_python(schema: Any, arguments: Any, problem: str | None) -> None:
    assert checked({"type": "dict", "properties": schema}, arguments) == problem


DRAFT7 = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "definitions": {"positive": {"type": "integer", "exclusiveMinimum": 0}},
    "properties": {
        "n": {"$ref": "#/definitions/positive"},
        "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False},
    },
    "dependencies": {"n": ["pair"]},
}
DRAFT4 = {"type": "object", "properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}}}
DRAFT3 = {
    "$schema": "http://json-schema.org/draft-03/schema#",
    "properties": {"n": {"type": ["integer", {"enum": ["x"]}], "required": True}},
}
META = {"properties": {"schema": {"$ref": "http://json-schema.org/draft-07/schema#"}}}


@pytest.mark.parametrize(
    ("schema", "good", "bad", "message"),
    [
        (DRAFT7, {"n": 1, "pair": ["a", 1]}, {"n": 0, "pair": []}, "'n' must fit {\"exclusiveMinimum\": 0}, but is 0"),
        (DRAFT7, {"pair": ["a"]}, {"pair": ["a", 1, 2]}, "'pair' must fit {\"additionalItems\": false}"),
        (
            {**DRAFT7, "$schema": "https://example.com/mine"},
            {"pair": ["a"]},
            {"pair": [1]},
            "'pair[0]' must be of type",
        ),
        (DRAFT4, {"n": 1}, {"n": 0}, "'n' must fit"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", **DRAFT4}, {"n": 1}, {"n": 0}, "'n' must fit"),
        (DRAFT3, {"n": "x"}, {"n": "y"}, "'n' must be of type integer or {'enum': ['x']}"),
        (DRAFT3, {"n": 1}, {}, "'n' must fit {\"required\": true}"),
        ({"properties": {"n": {"type": "integer"}}}, {"n": 1, "m": [{}]}, {"n": "1"}, "'n' must be of type integer"),
        ({"properties": {"a": True, "b": False}}, {"a": {"x": [1]}}, {"b": 1}, "holds what is not allowed: 1"),
        (META, {"schema": {"type": "string"}}, {"schema": {"type": 5}}, "'schema.type' must fit"),
        (
            {"patternProperties": {"^x-": {}}, "additionalProperties": False},
            {"x-a": 1},
            {"x-a": 1, "y": 2},
            'unknown argument "y". Known: none.',
        ),
        ({"type": ["object", "null"], "required": ["a"], "x-odd": 1}, {"a": 1}, {}, "argument 'a' is missing"),
    ],
)
def test_schemas_of_every_draft_and_with_odd_keywords(
    schema: dict[str, Any], good: dict[str, Any], bad: dict[str, Any], message: str
) -> None:
    assert checked(schema, good) is None
    assert str(checked(schema, bad)).startswith(message) or message in str(checked(schema, bad))


@pytest.mark.parametrize(
    "rule",
    [
        {"pattern": r"^(?=x)x$"},  # a lookahead, which takes more than linear time
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/schema.json"},  # nothing is fetched
    ],
)
def test_what_cannot_be_checked_is_left_to_the_tool_and_said_once(
    rule: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    checker = ArgumentChecker(ToolSpec("t", "", {"type": "object", "properties": {"a": rule}}))
    assert [checker.problem({"a": "x"}) for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1
    assert "JSON schema cannot be checked whole" in caplog.text


@pytest.mark.parametrize(
    "schema", [{"type": "objekt"}, {"required": "a"}, {"$schema": 5}, {"properties": {"a": {"type": "whole"}}}]
)
def test_a_schema_of_no_draft_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="tool t: its parameters are not a JSON schema at"):
        checked(schema, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["text", "times", "$ref", "\ud800"]) | st.text(max_size=8), JSON, max_size=4
)
HOSTILE = st.builds(
    ToolCall,
    id=st.text(max_size=5),
    name=st.sampled_from(["echo", "strict", "ech\x00o", "", "x" * 100_000]) | st.text(st.characters()),
    arguments_text=st.text(),
    arguments=st.none() | ARGUMENTS,
    error=st.none() | st.text(st.characters(), min_size=1),
)


@tool
async def strict(numbers: dict[str, list[int | None]], text: Any = None) -> Any:
    return numbers


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(HOSTILE, min_size=1, max_size=5))
def test_no_call_makes_it_raise(calls: list[ToolCall]) -> None:
    async def work(manager: DefaultToolManager) -> tuple[ToolResult, ...]:
        return await manager.invoke(calls, CONTEXT)

    results = manage(work, echo, strict, max_result_tokens=100, cache=True)
    assert [result.call_id for result in results] == [call.id for call in calls]
    for result in results:
        assert result.fault in (None, FaultKind.POLICY, FaultKind.TOOL)
        assert len(result.content.encode()) < 600


def test_arguments_beyond_all_bounds() -> None:
    nested: Any = "deep"
    for _ in range(50_000):
        nested = [nested]
    cases: list[Mapping[str, Any]] = [
        {"numbers": {}, "text": nested},
        {"numbers": {"a": [10**5000]}},
        {"numbers": {"a": [float("inf")]}},
    ]
    for arguments in cases:
        result = invoke(ToolCall("0", "strict", "", arguments), strict, cache=True)
        assert result.fault is FaultKind.POLICY
        assert len(result.content) < 300


UNION = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "anyOf": [
                {"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}, "k": {"const": kind}}}
                for kind in range(4)
            ]
        }
    },
}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"k": "none"}
    for _ in range(depth):
        value = {"a": value, "k": "none"}
    return value


@pytest.mark.parametrize(
    ("rule", "value", "problem"),
    [
        (UNION, nested(20), "too complicated to be checked"),
        ({"type": "string", "pattern": r"^([a-zA-Z]+\s?)*$"}, "a" * 50 + "!", "must fit"),
        ({"type": "object", "patternProperties": {r"^(a|a)*$": {"type": "null"}}}, {"a" * 60 + "!": 1}, None),
        (
            {"type": "object", "patternProperties": {r"^(a+)+$": {}}, "additionalProperties": False},
            {"a" * 60 + "!": 1},
            "unknown argument",
        ),
        ({"type": "array", "uniqueItems": True}, [{"id": i, "tags": ["x"]} for i in range(20_000)], None),
        ({"type": "array", "uniqueItems": True}, [{"id": 1}, {"id": 1.0}], "must fit"),
        ({"type": "array", "uniqueItems": True}, [1, True, "1", None], None),
        ({"contains": {"enum": [[number] for number in range(3000)]}}, [["x"]] * 5000, "must fit"),
        ({"enum": ["x", [1, {"a": True}]]}, [1.0, {"a": True}], None),
        ({"enum": ["x", [1, {"a": True}]]}, [1, {"a": 1}], "must be one of"),
        ({"items": {"type": "integer"}}, ["x"] * 100_000, "'v[0]' must be of type integer, not \"x\"; 'v[1]' must"),
        (
            {"type": "array", "items": {"$ref": "#/$defs/o"}, "$defs": {"o": {"required": ["id"]}}},
            [{"id": 1}] * 9999,
            None,
        ),
    ],
)
def test_checking_takes_bounded_work(rule: dict[str, Any], value: object, problem: str | None) -> None:
    """Each of the first four, and the enum of lists, would take longer than any test may."""
    defs = {"$defs": rule.pop("$defs")} if "$defs" in rule else {}
    checker = ArgumentChecker(ToolSpec("t", "", {"type": "object", "properties": {"v": rule}, **defs}))
    found = checker.problem({"v": value})
    assert found is None if problem is None else problem in (found or "")


@pytest.mark.parametrize("of", ["anyOf", "oneOf"])
def test_one_wrong_item_rules_out_one_of_several_schemas(of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_validator, "WORK_PER_NODE", 0)  # so that each item cannot be looked at
    rule = {of: [{"items": {"type": "integer"}}, {"items": {"type": "null"}}]}
    checker = ArgumentChecker(ToolSpec("t", "", {"type": "object", "properties": {"v": rule}}))
    assert "'v' must fit" in (checker.problem({"v": ["x"] * 100_000}) or "")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("rule", [{"type": "number", "minimum": 3}, {"type": "number"}, {}])
def test_what_is_no_number_of_json_fits_no_rule(rule: dict[str, Any], number: float) -> None:
    checker = ArgumentChecker(ToolSpec("t", "", {"type": "object", "properties": {"v": rule}}))
    assert "cannot be written as JSON" in (checker.problem({"v": number}) or "")
