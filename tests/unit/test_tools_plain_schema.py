"""The quick yes: as fast as it is, it never says yes where the JSON-schema validator of any draft says no."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator, Draft6Validator, Draft7Validator, Draft202012Validator
from jsonschema.validators import Draft201909Validator

from rlfactory_core.tools import tool
from rlfactory_core.tools.validation import plainly_fits

DRAFTS: tuple[Any, ...] = (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)
NAMES = st.sampled_from(["a", "b"])
SCALARS = st.sampled_from(
    [None, True, False, -1, 0, 1, 3, 2**70, 0.0, 1.5, float("nan"), float("inf"), "", "a", "bb", "é", "\ud800"]
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=4
)
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
PLAIN = (
    st.fixed_dictionaries({"type": KINDS | st.lists(KINDS, min_size=1, max_size=3, unique=True)})
    | st.fixed_dictionaries({"enum": st.lists(SCALARS, min_size=1, max_size=4)})
    | st.fixed_dictionaries({"type": st.sampled_from(["integer", "number"]), "minimum": st.sampled_from([-1, 0, 1.5])})
    | st.fixed_dictionaries({"maximum": st.sampled_from([0, 0.5, 3])})
    | st.booleans()
    | st.just({})
)
# What the quick test does not know, and may therefore not overlook.
ODD = st.sampled_from(
    [
        {"maxLength": 1},
        {"not": {"type": "string"}},
        {"const": 1},
        {"exclusiveMinimum": 0},
        {"minimum": 0, "exclusiveMinimum": True},
        {"dependencies": {"a": ["b"]}},
        {"uniqueItems": True},
        {"default": 1, "format": "date", "title": "t"},
    ]
)


def composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = {
        "type": st.just("object"),
        "properties": st.dictionaries(NAMES, inner, max_size=2),
        "required": st.lists(NAMES, min_size=1, unique=True),
        "additionalProperties": inner,
    }
    return (
        st.fixed_dictionaries({}, optional=objects)
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})
        | st.builds(lambda one, two: {**one, **two} if isinstance(one, dict) else one, inner, ODD)
        | st.builds(
            lambda one, two: {**one, **two} if isinstance(one, dict) and isinstance(two, dict) else one, inner, inner
        )
    )


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.recursive(PLAIN, composed, max_leaves=4), st.lists(VALUES, min_size=6, max_size=12))
@pytest.mark.slow
def test_a_quick_yes_is_every_drafts_yes(schema: Any, values: list[Any]) -> None:
    fitting = [draft for draft in DRAFTS if draft(draft.META_SCHEMA).is_valid(schema)]
    fits = plainly_fits(schema) if fitting else lambda value: False
    for value in filter(fits, values):
        json.dumps(value, ensure_ascii=False).encode()
        for draft in fitting:
            assert draft(schema).is_valid(value), (schema, value, draft)


@tool
def typical(query: str, k: int = 3, places: list[str] | None = None, exact: bool = False, near: float = 0.5) -> str:
    """Search.

    Args:
        query: what to look for.
    """
    return query


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "who"},
        {"query": "wér", "k": 5, "places": ["a", "b"], "exact": True, "near": 1},
        {"query": "", "places": None},
    ],
)
def test_a_typical_functions_good_arguments_are_seen_at_once(arguments: dict[str, Any]) -> None:
    assert plainly_fits(typical.spec.parameters)(arguments)


def test_what_it_does_not_know_it_leaves_to_the_validator() -> None:
    fits = plainly_fits(typical.spec.parameters)
    for arguments in ({}, {"query": 1}, {"query": "a", "new": 1}, {"query": "a", "k": 1.0}, {"query": "\ud800"}):
        assert not fits(arguments)
