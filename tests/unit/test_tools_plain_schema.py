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
    [None, True, False, -1, 0, 1, 2**70, 0.0, 1.5, float("nan"), float("inf"), "", "a", "é", "\ud800", [], {}]
)
VALUES = st.dictionaries(NAMES, SCALARS, max_size=2)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object", ["string", "null"]])
ODD = st.sampled_from(  # what the quick test does not know, and may therefore not overlook
    [
        {},
        {"maxLength": 1},
        {"const": 1},
        {"minimum": 1},
        {"enum": ["a"]},
        {"default": 1, "format": "date", "title": "t"},
    ]
)
PROPERTY = st.booleans() | st.builds(lambda kind, odd: {"type": kind} | odd, TYPES, ODD) | ODD
SCHEMAS = st.fixed_dictionaries(
    {"type": TYPES},
    optional={
        "properties": st.dictionaries(NAMES, PROPERTY, max_size=2),
        "required": st.lists(NAMES, min_size=1, unique=True),
        "additionalProperties": st.booleans(),
        "minProperties": st.just(1),
    },
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS, st.lists(VALUES, min_size=6, max_size=12))
@pytest.mark.slow
def test_a_quick_yes_is_every_drafts_yes(schema: Any, values: list[Any]) -> None:
    fitting = [draft for draft in DRAFTS if draft(draft.META_SCHEMA).is_valid(schema)]
    fits = plainly_fits(schema) if fitting else lambda value: False
    for value in filter(fits, values):
        json.dumps(value, ensure_ascii=False).encode()
        for draft in fitting:
            assert draft(schema).is_valid(value), (schema, value, draft)


@tool
def typical(query: str, k: int = 3, exact: bool = False, near: float = 0.5) -> str:
    """Search.

    Args:
        query: what to look for.
    """
    return query


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "who"},
        {"query": "wér", "k": 5, "exact": True, "near": 1},
    ],
)
def test_a_typical_functions_good_arguments_are_seen_at_once(arguments: dict[str, Any]) -> None:
    assert plainly_fits(typical.spec.parameters)(arguments)


def test_what_it_does_not_know_it_leaves_to_the_validator() -> None:
    fits = plainly_fits(typical.spec.parameters)
    for arguments in ({}, {"query": 1}, {"query": "a", "new": 1}, {"query": "a", "k": 1.0}, {"query": "\ud800"}):
        assert not fits(arguments)
