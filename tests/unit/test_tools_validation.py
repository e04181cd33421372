"""What the model wrote, checked against the tool's schema: named mistakes, and never an exception."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tool_calls import CONTEXT, echo, invoke, manage, write

from rlfactory_core.tools import DefaultToolManager, tool
from rlfactory_core.types import FaultKind, ToolCall, ToolResult


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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
