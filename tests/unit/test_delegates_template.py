"""Prompts with holes: only plain names, and what is put in is never read as a template."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfactory_core.delegates.template import read_template
from rlfactory_core.errors import UsageError


def test_fields_become_required_strings() -> None:
    template = read_template("Say {text} to {who}, as {{JSON}}: {text}")
    assert template.parameters({"who": "a person"}) == {
        "type": "object",
        "properties": {"text": {"type": "string"}, "who": {"type": "string", "description": "a person"}},
        "required": ["text", "who"],
        "additionalProperties": False,
    }
    assert template.fill({"text": "hi", "who": "you"}) == "Say hi to you, as {JSON}: hi"


@given(st.text(), st.text())
def test_what_a_model_writes_is_put_in_as_it_is(first: str, second: str) -> None:
    template = read_template("{a}|{b}|{{a}}")
    assert template.fill({"a": first, "b": second}) == f"{first}|{second}|{{a}}"


@pytest.mark.parametrize("field", ["{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>9}", "{a:{b}}", "{a b}", "{a", "a}"])
def test_anything_but_plain_names_is_refused(field: str) -> None:
    with pytest.raises(UsageError, match=r"expected \{name\} for each argument"):
        read_template(f"{{ok}} {field}")


def test_a_prompt_has_a_field_and_describes_no_other() -> None:
    with pytest.raises(UsageError, match="no field"):
        read_template("Summarise the text, {{text}}.")
    with pytest.raises(UsageError, match=r"no \{txet\}. Did you mean 'text'"):
        read_template("{text}").parameters({"txet": "?"})
