"""Prompts with fields: only plain names are fields, and an argument is never read as a template."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlfactory_agents.tools.model import Question, argument_schema, prompt_fields

from rlfactory_core.errors import UsageError


def filled(prompt: str, **arguments: str) -> str:
    (message,) = Question("toy", prompt, None, max_tokens=9, temperature=0.0).messages(arguments)
    return message.content


def test_fields_become_required_strings() -> None:
    prompt = "Say {text} to {who}, as {{JSON}}: {text}"
    assert argument_schema(prompt_fields(prompt), {"who": "a person"}) == {
        "type": "object",
        "properties": {"text": {"type": "string"}, "who": {"type": "string", "description": "a person"}},
        "required": ["text", "who"],
        "additionalProperties": False,
    }
    assert filled(prompt, text="hi", who="you") == "Say hi to you, as {JSON}: hi"


@pytest.mark.slow
@given(st.text(), st.text())
def test_what_a_model_writes_is_put_in_as_it_is(first: str, second: str) -> None:
    assert filled("{a}|{b}|{{a}}", a=first, b=second) == f"{first}|{second}|{{a}}"


@pytest.mark.parametrize("field", ["{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>9}", "{a:{b}}", "{a b}", "{a", "a}"])
def test_anything_but_plain_names_is_refused(field: str) -> None:
    with pytest.raises(UsageError, match=r"expected \{name\} for each argument"):
        prompt_fields(f"{{ok}} {field}")


def test_a_prompt_has_a_field_and_describes_no_other() -> None:
    with pytest.raises(UsageError, match="no field"):
        prompt_fields("Summarise the text, {{text}}.")
    with pytest.raises(UsageError, match=r"no \{txet\}. Did you mean 'text'"):
        argument_schema(prompt_fields("{text}"), {"txet": "?"})
